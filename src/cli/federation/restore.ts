// drawbridge federation restore: takes a containment back.
import { containmentCommand } from "../lib/containment.ts";

export const command = containmentCommand("restore");
