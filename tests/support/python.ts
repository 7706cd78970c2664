// Python programs of the tests: an environment with the packages that a requirements file locks, and the agents on the
// Python SDK of A2A. Needs python3 and the package registry, as the lab's own installation does.
import assert from "node:assert/strict";
import { join } from "node:path";
import { ROOT, run, start, temporaryFolder } from "./temporary.ts";

interface Disposer {
  after(close: () => unknown): unknown;
}

/** A Python with exactly these packages. @param requirements a file in `requirements` */
export async function pythonWith(t: Disposer, requirements: string): Promise<string> {
  const environment = join(temporaryFolder(t), "venv");
  const made = await run("python3", ["-m", "venv", environment]);
  assert.equal(made.code, 0, made.stderr);
  const python = join(environment, "bin", "python");
  const options = ["--disable-pip-version-check", "--no-input", "--quiet", "--require-hashes"];
  const file = join(ROOT, "requirements", requirements);
  const installed = await run(python, ["-m", "pip", "install", ...options, "-r", file]);
  assert.equal(installed.code, 0, installed.stderr);
  return python;
}

/** The version of the protocol that the SDK is of. */
export type PythonSdk = "0.3" | "1.0";

/** An agent on the Python SDK; resolves to its address. It ends with the test. */
export async function startPythonAgent(t: Disposer, python: string, sdk: PythonSdk): Promise<string> {
  const program = join(ROOT, "tests", "support", "python", `a2a_agent_${sdk.replace(".", "_")}.py`);
  const agent = start(python, [program]);
  t.after(async () => {
    agent.child.kill("SIGKILL");
    await agent.finished;
  });
  const port = await agent.printed("\n");
  return `http://127.0.0.1:${port.trim()}`;
}
