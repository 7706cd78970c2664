// Whether there is room, an address to listen on, and a place where servers can keep their data.
import { lookup } from "node:dns/promises";
import { statfsSync } from "node:fs";
import { availableParallelism, totalmem } from "node:os";
import { freePort } from "../../lab/ports.ts";
import { postgresBinaries } from "../../lab/postgres/binaries.ts";
import { canEnter, unprivilegedUser } from "../../lab/postgres/unprivileged-user.ts";
import { DrawbridgeError } from "../../src/domain/errors.ts";
import { ROOT } from "../run-program.ts";
import { type Finding, note, ok, problem } from "./finding.ts";

const GiB = 1024 ** 3;
const DISK_GIB_MIN = 3;
const MEMORY_GIB_MIN = 4;

function gib(bytes: number): string {
  return `${(bytes / GiB).toFixed(1)} GiB`;
}

export function checkDisk(): Finding {
  const { bavail, bsize } = statfsSync(ROOT);
  const free = bavail * bsize;
  if (free < DISK_GIB_MIN * GiB) {
    return problem("disk", `${gib(free)} free`, `Free at least ${DISK_GIB_MIN} GiB where the clone stands.`);
  }
  return ok("disk", `${gib(free)} free`);
}

export function checkMemory(): Finding {
  const found = `${gib(totalmem())}, ${availableParallelism()} cores`;
  return totalmem() < MEMORY_GIB_MIN * GiB
    ? note("memory", found, `The lab with three organisations wants ${MEMORY_GIB_MIN} GiB.`)
    : ok("memory", found);
}

export async function checkPorts(): Promise<Finding> {
  const hint = "Let this user listen on 127.0.0.1: every server here listens there and nowhere else.";
  try {
    await Promise.all(Array.from({ length: 40 }, () => freePort()));
  } catch {
    return problem("ports", "40 free ports on 127.0.0.1 are not to be had", hint);
  }
  const addresses = await lookup("localhost", { all: true }).catch(() => []);
  return addresses.some(({ address }) => address === "127.0.0.1")
    ? ok("ports", "127.0.0.1 can be listened on")
    : problem("ports", "localhost is not 127.0.0.1", "Write the line `127.0.0.1 localhost` into /etc/hosts.");
}

export function checkClonePath(): Finding {
  if (ROOT.includes(":")) {
    return problem(
      "clone path",
      ROOT,
      "Move the clone to a path without a colon: search paths are split at it.",
    );
  }
  const user = unprivilegedUser();
  if (user !== undefined && !canEnter(ROOT, user)) {
    return note(
      "clone path",
      `${ROOT} is closed to the user nobody`,
      "Nothing to do: as root, PostgreSQL and its data are kept in /var/tmp/drawbridge-0-… instead.",
    );
  }
  return ok("clone path", ROOT);
}

export function checkPostgres(): Finding {
  try {
    const { copiedTo } = postgresBinaries(unprivilegedUser());
    return ok(
      "PostgreSQL",
      copiedTo === undefined ? "its programs run" : `its programs run from ${copiedTo}`,
    );
  } catch (error) {
    if (!(error instanceof DrawbridgeError)) throw error;
    return problem("PostgreSQL", error.message, error.hint ?? "");
  }
}
