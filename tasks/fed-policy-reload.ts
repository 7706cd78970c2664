// Has the lab's homeservers take their policy files at once. See lab.
import { policyReload } from "../lab/commands/policy-reload.ts";
import type { Task } from "./task.ts";

export const task: Task = {
  name: "fed:policy-reload",
  summary:
    "Have the homeservers take their policy files at once, without a restart, and prove that they have.",
  needs: {},
  explainsItself: true,
  run: policyReload,
};
