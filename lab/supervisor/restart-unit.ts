// Asks a lab's supervisor to restart one unit: `node restart-unit.ts LAB_FOLDER UNIT`. What federation.yaml
// of the lab names where a real operator's would name the service manager.
import process from "node:process";
import { DrawbridgeError } from "../../src/domain/errors.ts";
import { readLab } from "../lab.ts";
import { labPaths } from "../layout.ts";
import { supervisorClient } from "./client.ts";

const [directory, unit] = process.argv.slice(2);
const lab = directory === undefined ? undefined : readLab(labPaths(directory));
if (lab === undefined || unit === undefined) {
  throw new DrawbridgeError("usage", "say the folder of a lab, and a unit of it");
}
await supervisorClient(lab).execute({ action: "restart", unit });
