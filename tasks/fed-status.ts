// Shows the lab's status. See lab.
import { status } from "../lab/commands/status.ts";
import type { Task } from "./task.ts";

export const task: Task = {
  name: "fed:status",
  summary: "What of the lab runs where; --json for scripts.",
  needs: {},
  explainsItself: true,
  run: status,
};
