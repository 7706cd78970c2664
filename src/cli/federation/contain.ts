// drawbridge federation contain: breaks the glass on one partner.
import { actCommand } from "../lib/federation-act.ts";

export const command = actCommand("contain");
