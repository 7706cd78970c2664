// Ends the lab. See lab.
import { down } from "../lab/commands/down.ts";
import type { Task } from "./task.ts";

export const task: Task = {
  name: "fed:down",
  summary: "End the lab's own programs; --purge removes its data too.",
  needs: {},
  explainsItself: true,
  run: down,
};
