// Runs the lab's tasks as a person does, each in a process of its own, on a state folder of the test's own.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { AskResult } from "../../lab/ask/ask.ts";
import { STATE_VARIABLE } from "../../lab/layout.ts";
import type { Proof } from "../../lab/proof/proof.ts";
import { FedStatus } from "../../lab/status/schema.ts";
import { systemClock } from "../../src/domain/clock.ts";
import { type Finished, ROOT, run } from "./temporary.ts";

export interface ProofOutput extends Proof {
  readonly found: "running" | "repaired" | "started";
  readonly tookMs: number;
}

export class Fed {
  /** With a space in its name, and closed to other users. */
  readonly state: string;

  constructor() {
    this.state = mkdtempSync(join(tmpdir(), "drawbridge lab "));
  }

  task(name: string, ...args: string[]): Promise<Finished> {
    return run(process.execPath, [join(ROOT, "tasks", "main.ts"), name, ...args], {
      env: { ...process.env, [STATE_VARIABLE]: this.state },
    });
  }

  /** Runs a task that must succeed. */
  async good(name: string, ...args: string[]): Promise<string> {
    const { code, stdout, stderr } = await this.task(name, ...args);
    assert.equal(code, 0, `${name} ${args.join(" ")} ended with ${code}:\n${stderr}\n${stdout}`);
    return stdout;
  }

  async up(...args: string[]): Promise<ProofOutput> {
    return JSON.parse(await this.good("fed:up", "--json", ...args));
  }

  async ask(...args: string[]): Promise<AskResult> {
    return JSON.parse(await this.good("fed:ask", "--json", ...args));
  }

  async status(...args: string[]): Promise<FedStatus> {
    return FedStatus.parse(JSON.parse((await this.task("fed:status", "--json", ...args)).stdout));
  }

  /** Waits until the status is as wanted. */
  async until(isSo: (status: FedStatus) => boolean, timeoutMs = 60_000): Promise<FedStatus> {
    const deadline = systemClock.now() + timeoutMs;
    for (;;) {
      const status = await this.status();
      if (isSo(status)) return status;
      assert.ok(systemClock.now() < deadline, `it did not become so: ${JSON.stringify(status, null, 1)}`);
      await systemClock.sleep(200);
    }
  }

  remove(): void {
    rmSync(this.state, { recursive: true, force: true });
  }
}
