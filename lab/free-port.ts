// Free TCP ports on the loopback address.
import { createServer } from "node:net";

function tryListen(port: number): Promise<number | undefined> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once("error", () => resolve(undefined));
    server.listen({ host: "127.0.0.1", port, exclusive: true }, () => {
      const address = server.address();
      const bound = typeof address === "object" && address !== null ? address.port : undefined;
      server.close(() => resolve(bound));
    });
  });
}

/** The preferred port when nobody listens on it, else any free one. */
export async function freePort(preferred?: number): Promise<number> {
  const kept = preferred === undefined ? undefined : await tryListen(preferred);
  const port = kept ?? (await tryListen(0));
  if (port === undefined) throw new Error("no free TCP port on 127.0.0.1");
  return port;
}
