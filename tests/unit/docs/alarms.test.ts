// The alarm rules, the reference of metrics and the operating guide say what the bridge really counts.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { parse } from "yaml";
import { createMetrics, ENCRYPTED_OUTCOMES } from "../../../src/bridge/metrics.ts";
import { ROOT } from "../../support/temporary.ts";

interface Rule {
  readonly alert: string;
  readonly expr: string;
  readonly for?: string;
  readonly labels: { readonly severity: string };
  readonly annotations: { readonly summary: string };
}

const read = (path: string) => readFileSync(`${ROOT}/${path}`, "utf8");
const { groups } = parse(read("deploy/prometheus/drawbridge.rules.yml")) as {
  groups: { name: string; rules: Rule[] }[];
};
const rules = groups.flatMap((group) => group.rules);

/** Metrics of the bridge's own, with their labels. */
async function counted(): Promise<ReadonlyMap<string, readonly string[]>> {
  const { registry } = createMetrics();
  const metrics = (await registry.getMetricsAsArray()) as unknown as { name: string; labelNames: string[] }[];
  return new Map(
    metrics
      .filter(({ name }) => name.startsWith("drawbridge_"))
      .map(({ name, labelNames }) => [name, labelNames]),
  );
}

test("every alarm looks at metrics and labels that there are", async () => {
  const metrics = await counted();
  assert.ok(rules.length >= 12);
  assert.equal(new Set(rules.map(({ alert }) => alert)).size, rules.length);
  for (const { alert, expr, labels, annotations } of rules) {
    const used = [...expr.matchAll(/(drawbridge_[a-z_]+)(?:\{([^}]*)\})?/g)];
    assert.ok(used.length > 0, alert);
    for (const [, name = "", matchers = ""] of used) {
      const labelNames = metrics.get(name);
      assert.ok(labelNames !== undefined, `${alert}: ${name}`);
      for (const [, label = "", value = ""] of matchers.matchAll(/([a-z_]+)=~?"([^"]*)"/g)) {
        assert.ok(labelNames.includes(label), `${alert}: ${name}{${label}}`);
        if (name !== "drawbridge_encrypted_events_total") continue;
        for (const outcome of value.split("|")) {
          assert.ok((ENCRYPTED_OUTCOMES as readonly string[]).includes(outcome), `${alert}: ${outcome}`);
        }
      }
    }
    assert.match(labels.severity, /^(?:page|ticket)$/);
    assert.match(annotations.summary, /^[A-Z].*\.$/);
  }
});

test("the operating guide says of every alarm what to do, and of no other", () => {
  const guide = read("docs/operating/encrypted-rooms.md");
  const told = [...guide.matchAll(/^\| `(Drawbridge[A-Za-z]+)` \|/gm)].map(([, name]) => name);
  assert.deepEqual(told.toSorted(), rules.map(({ alert }) => alert).toSorted());
});

test("the reference lists every metric of the bridge with its labels, and no other", async () => {
  const listed = [
    ...read("docs/reference/metrics.md").matchAll(/^\| `(drawbridge_[a-z_]+)(?:\{([a-z_,]+)\})?` \|/gm),
  ];
  const metrics = await counted();
  assert.deepEqual(listed.map(([, name]) => name).toSorted(), [...metrics.keys()].toSorted());
  for (const [, name = "", labels = ""] of listed) {
    assert.deepEqual(labels === "" ? [] : labels.split(","), metrics.get(name), name);
  }
});
