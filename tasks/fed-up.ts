// Brings up the lab. See lab.
import { up } from "../lab/commands/up.ts";
import type { Task } from "./task.ts";

export const task: Task = {
  name: "fed:up",
  summary:
    "Three organisations on real servers, and a proof that they work together; run it again at any time.",
  needs: {
    python: true,
  },
  explainsItself: true,
  run: up,
};
