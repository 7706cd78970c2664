// Makes an evidence pack about a partner in the lab. See lab.
import { evidencePack } from "../lab/commands/evidence-pack.ts";
import type { Task } from "./task.ts";

export const task: Task = {
  name: "fed:evidence-pack",
  summary: "An evidence pack about a partner: what its planes, its probes and the record streams say.",
  needs: {},
  explainsItself: true,
  run: evidencePack,
};
