// Taking connections where the configuration says. Invariant: a port that is taken is an error with its mend.
import { DrawbridgeError } from "../domain/errors.ts";

/**
 * @param setting the configuration's name for the address
 * @throws DrawbridgeError `program_failed`
 */
export async function listen(
  server: { listen(address: { host: string; port: number }): Promise<string> },
  address: { readonly host: string; readonly port: number },
  setting: string,
): Promise<void> {
  try {
    await server.listen({ ...address });
  } catch (cause) {
    throw new DrawbridgeError("program_failed", `cannot listen on ${address.host}:${address.port}`, {
      mend: `Free that port, or change \`${setting}\` in the configuration.`,
      cause,
    });
  }
}
