// Cuts or heals a link of the lab. See lab.
import { link } from "../lab/commands/link.ts";
import type { Task } from "./task.ts";

export const task: Task = {
  name: "fed:link",
  summary: "Cut or heal the network between two organisations of the lab.",
  needs: {},
  explainsItself: true,
  run: link,
};
