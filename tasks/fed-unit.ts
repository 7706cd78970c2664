// Acts on one program of the lab. See lab.
import { unit } from "../lab/commands/unit.ts";
import type { Task } from "./task.ts";

export const task: Task = {
  name: "fed:unit",
  summary: "Stop, start, restart or kill one program of the lab.",
  needs: {},
  explainsItself: true,
  run: unit,
};
