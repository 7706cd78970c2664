// drawbridge federation restore: takes a containment back.
import { actCommand } from "../lib/federation-act.ts";

export const command = actCommand("restore");
