// Shows the lab's logs. See lab.
import { logs } from "../lab/commands/logs.ts";
import type { Task } from "./task.ts";

export const task: Task = {
  name: "fed:logs",
  summary: "What the lab's programs have written; -f follows.",
  needs: {},
  explainsItself: true,
  run: logs,
};
