// Takes a removed organisation of the lab back. See lab.
import { readmitTask } from "../lab/commands/readmit.ts";
import type { Task } from "./task.ts";

export const task: Task = {
  name: "fed:readmit",
  summary: "Take a removed partner of the lab back, as a new one, and have its people ask again.",
  needs: {},
  explainsItself: true,
  run: readmitTask,
};
