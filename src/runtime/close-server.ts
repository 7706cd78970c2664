// Ending an HTTP server: requests in flight may finish, idle connections may not hold it open.
import type { Server } from "node:http";
import type { Clock } from "../domain/clock.ts";

const GRACE_MS = 5_000;
/** A connection is idle only some time after its last answer, so it is looked for again and again. */
const LOOK_INTERVAL_MS = 20;

/** Stops listening and resolves when every connection is closed; after five seconds it closes them itself. */
export async function closeServer(server: Server, clock: Clock): Promise<void> {
  let open = true;
  const closed = new Promise<void>((resolve) => {
    server.close(() => {
      open = false;
      resolve();
    });
  });
  const deadline = clock.now() + GRACE_MS;
  while (open) {
    if (clock.now() >= deadline) server.closeAllConnections();
    else server.closeIdleConnections();
    await Promise.race([closed, clock.sleep(LOOK_INTERVAL_MS)]);
  }
}
