// Removes an organisation of the lab, signed by both. See lab.
import { offboardTask } from "../lab/commands/offboard.ts";
import type { Task } from "./task.ts";

export const task: Task = {
  name: "fed:offboard",
  summary:
    "Remove a partner in the lab between both operators, plane by plane, up to a record that anyone can verify.",
  needs: {},
  explainsItself: true,
  run: offboardTask,
};
