// Asks an agent of the lab. See lab.
import { askTask } from "../lab/commands/ask.ts";
import type { Task } from "./task.ts";

export const task: Task = {
  name: "fed:ask",
  summary: "Ask an agent in a shared room, and see the answer with its time line.",
  needs: {},
  explainsItself: true,
  run: askTask,
};
