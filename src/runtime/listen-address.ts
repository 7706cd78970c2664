// An address to listen on, as configuration files write it.
import { z } from "zod";

export const ListenAddress = z.strictObject({
  host: z.string().default("127.0.0.1"),
  port: z.int().min(1).max(65_535),
});
