// Contains a partner in the lab, and takes it back. See lab.
import { breakGlass } from "../lab/commands/break-glass.ts";
import type { Task } from "./task.ts";

export const task: Task = {
  name: "fed:break-glass",
  summary: "Contain a partner in the lab while it keeps trying; see when each plane closes; take it back.",
  needs: {},
  explainsItself: true,
  run: breakGlass,
};
