// drawbridge federation contain: cuts a partner off at once.
import { containmentCommand } from "../lib/containment.ts";

export const command = containmentCommand("contain");
