// Fields that several admission files share: paths, client IDs, quotas.
import { z } from "zod";

export const AbsolutePath = z
  .string()
  .regex(/^(?:\/[A-Za-z0-9_~-][A-Za-z0-9._~-]*|\/\.[A-Za-z0-9_~-][A-Za-z0-9._~-]*)+$/, {
    error: "must be an absolute path of letters, digits and . _ ~ - /, without empty or dot segments",
  });

/** An OAuth client ID as tokens carry it. Printable, so that it can stand in an access log line. */
export const ClientId = z
  .string()
  .regex(/^[\x21-\x7e]{1,255}$/, { error: "must be 1 to 255 printable characters" });

/** A URL without credentials, which would land in a file, and without a fragment. */
export const plainUrl = (protocol: RegExp) =>
  z.url({ protocol }).refine(
    (value) => {
      const url = URL.parse(value);
      return url !== null && url.username === "" && url.password === "" && url.hash === "";
    },
    { error: "must have no user, password or fragment" },
  );

/** Where an agent itself is reached by its gateway. */
export const UpstreamUrl = plainUrl(/^http$/).refine((value) => URL.parse(value)?.search === "", {
  error: "must have no query",
});

/** Requests a client may make: `perMinute` on average, `burst` at once. */
export const Quota = z.strictObject({
  perMinute: z.int().min(1).max(1_000_000),
  burst: z.int().min(1).max(1_000_000),
});
export type Quota = z.output<typeof Quota>;
