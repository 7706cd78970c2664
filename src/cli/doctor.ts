// drawbridge doctor: shows what is wrong with a bridge, with a hint for each.
import { examineBridge, type Finding } from "../bridge/doctor/doctor.ts";
import { systemClock } from "../domain/clock.ts";
import { defineCommand, fromConfigFile, OPTION, print } from "./lib/command.ts";

const MARKS: Readonly<Record<Finding["state"], string>> = { ok: "ok", not_known: "?", failing: "PROBLEM" };
const WIDTH = 9;

export const command = defineCommand({
  options: [OPTION.bridge, ["--json", "print the findings as JSON"]],
  help: `
Examines the bridge's folder, its homeserver, the card that each agent serves now, for 5 s at most, and what the
running bridge says of itself: its database, its ghosts, and unless encryption is refused each link of their keys. It changes
nothing.
  ok       examined, and well
  ?        could not be examined, or is not found out yet; the next line says what to do
  PROBLEM  wrong; the next line is the hint
Exit code 1: there is a problem, an invalid configuration included. 5: there is none, and something is not known.`,
  async run(_, options) {
    const checks = await fromConfigFile(options.config, "bridge", (file) => examineBridge(file, systemClock));
    const json = checks.map((one) => ({ ...one, ok: one.state === "ok" }));
    const lines = checks.map(({ name, state, found, hint }) => {
      const line = `${MARKS[state].padEnd(WIDTH)}${name}: ${found}\n`;
      return hint === undefined ? line : `${line}${" ".repeat(WIDTH)}${hint}\n`;
    });
    print(options, json, () => lines.join(""));
    const states = new Set(checks.map(({ state }) => state));
    if (states.has("failing")) return "failed";
    return states.has("not_known") ? "incomplete" : "ok";
  },
});
