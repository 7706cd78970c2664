// Stands between a homeserver and its appservice and takes its time, so that more transactions are in flight
// and queued at any instant. Invariant: each request is passed on whole, or not at all.
import { createServer, request } from "node:http";
import type { TestContext } from "node:test";
import { systemClock } from "../../src/domain/clock.ts";

/** Listens on `port` and passes everything on to `target`, `delayMs` later. */
export async function slowTransactions(
  t: Pick<TestContext, "after">,
  port: number,
  target: number,
  delayMs: number,
): Promise<void> {
  const server = createServer((incoming, outgoing) => {
    const chunks: Buffer[] = [];
    incoming.on("data", (chunk: Buffer) => chunks.push(chunk));
    incoming.on("end", async () => {
      await systemClock.sleep(delayMs);
      const { method, url: path, headers } = incoming;
      const passed = request({ host: "127.0.0.1", port: target, method, path, headers }, (answer) => {
        outgoing.writeHead(answer.statusCode ?? 502, answer.headers);
        answer.pipe(outgoing);
      });
      passed.on("error", () => outgoing.destroy());
      passed.end(Buffer.concat(chunks));
    });
  });
  await new Promise<void>((resolve) => server.listen(port, "127.0.0.1", resolve));
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
}
