// The alarm rules, the reference of metrics and the operating guides say what is really counted.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { describe, it } from "node:test";
import { parser } from "@prometheus-io/lezer-promql";
import { parse } from "yaml";
import { TRANSACTION_OUTCOMES } from "../../../src/bridge/intake/server.ts";
import {
  INTAKE_ENVELOPE_REASONS,
  TERMINAL_REASONS,
  TERMINAL_STATES,
} from "../../../src/bridge/ledger/states.ts";
import {
  catchupMetrics,
  createMetrics,
  ENCRYPTED_OUTCOMES,
  intakeEnvelopeMetrics,
} from "../../../src/bridge/metrics.ts";
import { PLANE_NAMES } from "../../../src/federation/plane-order.ts";
import { ROOM_REASONS } from "../../../src/federation/planes/rooms/room-reasons.ts";
import type { Federation } from "../../../src/federation/reconcile/context.ts";
import { reconcilerMetrics } from "../../../src/federation/reconcile/metrics.ts";
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

/** Metrics of Drawbridge's own: of which type, and with which labels. */
async function counted() {
  const reconciler = reconcilerMetrics({} as Federation);
  const metrics = [
    ...createMetrics().registry.getMetricsAsArray(),
    ...reconciler.getMetricsAsArray(),
  ] as unknown as {
    name: string;
    type: string;
    labelNames: string[];
  }[];
  return new Map(
    metrics
      .filter(({ name }) => name.startsWith("drawbridge_"))
      .map(({ name, type, labelNames }) => [name, { type, labelNames }]),
  );
}

interface Selector {
  readonly metric: string;
  readonly matchers: readonly { readonly label: string; readonly values: readonly string[] }[];
  /** The function that is applied to its range; undefined where it is read as it stands. */
  readonly over: string | undefined;
  /** Whether the range is one of a sum of series. */
  readonly isSummedFirst: boolean;
}

const RANGES: ReadonlySet<string> = new Set(["MatrixSelector", "SubqueryExpr"]);

/** Parsed by Prometheus' own grammar. */
function parsed(expr: string): { readonly errors: number; readonly selectors: readonly Selector[] } {
  const selectors: Selector[] = [];
  let errors = 0;
  const text = ({ from, to }: { readonly from: number; readonly to: number }) => expr.slice(from, to);
  parser.parse(expr).iterate({
    enter: ({ type, node }) => {
      if (type.isError) errors += 1;
      if (type.name !== "VectorSelector") return;
      const metric = node.getChild("Identifier");
      const matchers = (node.getChild("LabelMatchers")?.getChildren("UnquotedLabelMatcher") ?? []).map(
        (one) => {
          const [label, op, value] = ["LabelName", "MatchOp", "StringLiteral"].map((name) =>
            one.getChild(name),
          );
          assert.ok(label && op && value, expr);
          const words = JSON.parse(text(value)) as string;
          return { label: text(label), values: text(op) === "=~" ? words.split("|") : [words] };
        },
      );
      let range = node.parent;
      while (range !== null && !RANGES.has(range.name)) range = range.parent;
      const over = range?.parent?.parent?.getChild("FunctionIdentifier");
      selectors.push({
        metric: metric === null ? "" : text(metric),
        matchers,
        over: over ? text(over) : undefined,
        isSummedFirst: range?.name === "SubqueryExpr",
      });
    },
  });
  return { errors, selectors };
}

/** Every value of the labels that alarms look at. */
const LABEL_VALUES: Readonly<Record<string, readonly string[]>> = {
  "drawbridge_encrypted_events_total outcome": ENCRYPTED_OUTCOMES,
  "drawbridge_encrypted_events_expired_total reason": INTAKE_ENVELOPE_REASONS.expired,
  "drawbridge_transactions_total outcome": TRANSACTION_OUTCOMES,
  "drawbridge_delegations_finished_total state": TERMINAL_STATES,
  "drawbridge_delegations_finished_total reason": TERMINAL_REASONS,
  "drawbridge_ghost_devices state": ["starting", "ready", "stopped"],
  "drawbridge_federation_out_of_reach plane": PLANE_NAMES,
  "drawbridge_federation_out_of_reach reason": Object.keys(ROOM_REASONS),
  "drawbridge_federation_drift_checked_timestamp_seconds plane": PLANE_NAMES,
  "drawbridge_federation_drift_differences plane": PLANE_NAMES,
  "drawbridge_federation_plane_in_force plane": PLANE_NAMES,
};

describe("alarms", () => {
  it("every alarm is a valid Prometheus expression over existing metrics, labels and values [OPS-2]", async () => {
    const metrics = await counted();
    assert.ok(rules.length >= 12);
    assert.equal(new Set(rules.map(({ alert }) => alert)).size, rules.length);
    for (const { alert, expr, for: held, labels, annotations, ...more } of rules) {
      const { errors, selectors } = parsed(expr);
      assert.equal(errors, 0, `${alert}: ${expr}`);
      assert.ok(selectors.length > 0, alert);
      for (const { metric, matchers, over } of selectors) {
        const found = metrics.get(metric);
        assert.ok(found !== undefined, `${alert}: ${metric}`);
        const overs = found.type === "counter" ? ["increase"] : [undefined, "last_over_time"];
        assert.ok(overs.includes(over), `${alert}: ${metric}`);
        for (const { label, values } of matchers) {
          assert.ok(found.labelNames.includes(label), `${alert}: ${metric}{${label}}`);
          const known = LABEL_VALUES[`${metric} ${label}`] ?? assert.fail(`${alert}: ${metric}{${label}}`);
          for (const value of values) assert.ok(known.includes(value), `${alert}: ${label}=${value}`);
        }
      }
      assert.deepEqual(more, {});
      if (held !== undefined) assert.match(held, /^[1-9][0-9]*[mh]$/);
      assert.deepEqual(Object.keys(labels), ["severity"]);
      assert.match(labels.severity, /^(?:page|ticket)$/);
      assert.deepEqual(Object.keys(annotations), ["summary"]);
      assert.match(annotations.summary, /^[A-Z].*\.$/);
    }
  });

  // The increase of a series begins after its first value. Only what comes again and again may begin with that.
  it("an alarm notices the first that is counted: its series is there from the start [OPS-2]", async () => {
    const page = await createMetrics().registry.metrics();
    const present = page.split("\n").filter((line) => line.startsWith("drawbridge_"));
    for (const { alert, expr } of rules) {
      if (alert === "DrawbridgeWorkFails" || alert === "DrawbridgeDevicesFlooded") continue;
      for (const { metric, matchers, over, isSummedFirst } of parsed(expr).selectors) {
        if (over !== "increase") continue;
        const named = matchers.flatMap(({ label, values }) => values.map((value) => `${label}="${value}"`));
        for (const one of named.length === 0 ? [""] : named) {
          const series = present.filter((line) => line.startsWith(metric) && line.includes(one));
          assert.ok(series.length > 0 || (isSummedFirst && one === 'state="completed"'), `${alert}: ${one}`);
        }
        const isComplete =
          metric !== "drawbridge_delegations_finished_total" || named.join().includes("reason");
        assert.ok(isSummedFirst || isComplete, `${alert}: a reason without a series`);
      }
    }
  });

  it("the alarm on missing keys counts only these, and every reason has a series [ENC-6]", async () => {
    const rule = rules.find(({ alert }) => alert === "DrawbridgeKeysNeverCame");
    const [selector] = parsed(rule?.expr ?? "").selectors;
    assert.equal(selector?.metric, "drawbridge_encrypted_events_expired_total");
    assert.deepEqual(selector.matchers, [
      { label: "reason", values: ["key_wait_elapsed", "key_requests_exhausted"] },
    ]);
    const metrics = createMetrics();
    const observer = intakeEnvelopeMetrics(metrics, { derived: () => {}, expired: () => {} });
    observer.expired("source_redacted");
    observer.expired("key_wait_elapsed");
    const { values } = await metrics.encryptedExpired.get();
    assert.deepEqual(
      Object.fromEntries(values.map(({ labels, value }) => [labels.reason, value])),
      Object.fromEntries(
        INTAKE_ENVELOPE_REASONS.expired.map((reason) => [
          reason,
          reason === "source_redacted" || reason === "key_wait_elapsed" ? 1 : 0,
        ]),
      ),
    );
  });

  it("the gauges that alarms read say what was observed last", async () => {
    const metrics = createMetrics();
    catchupMetrics(metrics).homeserverUp(false);
    assert.match(await metrics.registry.metrics(), /^drawbridge_homeserver_up 0$/m);
  });

  it("every query of the Grafana dashboard is valid, over metrics of the reference and their labels [OPS-2]", async () => {
    const metrics = await counted();
    const { panels } = JSON.parse(read("deploy/grafana/drawbridge.json")) as {
      panels: { title: string; targets?: { expr: string; legendFormat: string }[] }[];
    };
    const targets = panels.flatMap(({ targets: of = [] }) => of);
    assert.ok(targets.length > 15);
    for (const { expr, legendFormat } of targets) {
      const { errors, selectors } = parsed(expr);
      assert.equal(errors, 0, expr);
      for (const { metric, over } of selectors) {
        if (metric === "process_start_time_seconds") continue;
        const found = metrics.get(metric.replace(/_bucket$/, ""));
        assert.ok(found !== undefined, expr);
        assert.equal(metric.endsWith("_bucket"), found.type === "histogram", expr);
        assert.equal(over, found.type === "gauge" ? undefined : "rate", expr);
        const grouped = /\bby \(([a-z_, ]+)\)/.exec(expr)?.[1]?.split(", ") ?? ["instance"];
        const named = [...legendFormat.matchAll(/\{\{(\w+)\}\}/g)].map(([, label = ""]) => label);
        for (const label of [...grouped, ...named])
          assert.ok(["le", "instance", ...found.labelNames].includes(label), `${expr}: ${label}`);
      }
    }
  });

  it("the operating guide says what to do for every alarm, and for no other [OPS-2]", () => {
    const guides = ["encrypted-rooms", "border-module"].map((name) => read(`docs/operating/${name}.md`));
    const described = [...guides.join("\n").matchAll(/^\| `(Drawbridge[A-Za-z]+)` \|/gm)].map(
      ([, name]) => name,
    );
    assert.deepEqual(described.toSorted(), rules.map(({ alert }) => alert).toSorted());
  });

  it("the reference lists exactly the bridge's and the reconciler's metrics with their labels", async () => {
    const listed = [
      ...read("docs/reference/metrics.md").matchAll(/^\| `(drawbridge_[a-z_]+)(?:\{([a-z_,]+)\})?` \|/gm),
    ];
    const metrics = await counted();
    assert.deepEqual(listed.map(([, name]) => name).toSorted(), [...metrics.keys()].toSorted());
    for (const [, name = "", labels = ""] of listed) {
      assert.deepEqual(labels === "" ? [] : labels.split(","), metrics.get(name)?.labelNames, name);
    }
  });
});
