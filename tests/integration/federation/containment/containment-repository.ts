// A repository in which partners are contained and restored, with what was committed and recorded there.

import assert from "node:assert/strict";
import { join } from "node:path";
import type { TestContext } from "node:test";
import { performAct } from "../../../../src/federation/containment/contain-or-restore.ts";
import { renderAll } from "../../../../src/federation/planes/render.ts";
import { ContainmentRecord } from "../../../../src/federation/registry/committed-records.ts";
import { loadRegistry } from "../../../../src/federation/registry/load.ts";
import { AT, controlRepository, openControl } from "../../../support/control-repository.ts";
import { ManualClock } from "../../../support/manual-clock.ts";
import { temporaryFolder } from "../../../support/temporary.ts";

export async function control(
  t: TestContext,
  options: { settings?: Readonly<Record<string, unknown>> } = {},
) {
  const directory = temporaryFolder(t);
  const repository = await controlRepository(join(directory, "control"));
  const clock = new ManualClock(AT);
  const opened = await openControl(directory, repository, clock, options.settings);
  const { federation } = opened;
  const contain = (name = "lighthouse") => performAct(federation, "contain", name);
  const restore = (name = "lighthouse") => performAct(federation, "restore", name);
  const records = async () => {
    const files = await repository.read(await repository.requireHead(), ["records"]);
    return [...files.values()].map((text) => ContainmentRecord.parse(JSON.parse(text)));
  };
  /** Everything rendered is what the registry on the branch renders. */
  const assertWhole = async () => {
    const folders = ["registry", "rendered", "kubernetes"];
    const files = await repository.read(await repository.requireHead(), folders);
    const registry = loadRegistry(files);
    const wanted = renderAll(registry);
    const found = [...files].filter(([path]) => !path.startsWith("registry/"));
    assert.deepEqual(new Map(found.sort()), new Map([...wanted].sort()));
    return registry;
  };
  return { ...opened, directory, repository, clock, contain, restore, records, assertWhole };
}

export function containedIn(registry: ReturnType<typeof loadRegistry>): string[] {
  return registry.partners.filter(({ partner }) => partner.contained).map(({ name }) => name);
}
