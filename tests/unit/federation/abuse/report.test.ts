// Abuse reports come from outside: whatever they hold, only references get in, and nothing is repeated.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import { AbuseReport, abuseReportSchema, readReport } from "../../../../src/federation/abuse/report.ts";

const CATEGORIES = AbuseReport.shape.category.options;

const REPORT = {
  schema: "svc.federation.abuse-report.v1",
  reporter: { server_name: "c.test:8450" },
  subject: { server_name: "b.test:8449" },
  category: "compromised_server",
  severity: "critical",
  requested_action: "contain",
  evidence_refs: [
    "$RnVxZ2FhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWE",
    "$15150abc:b.test:8449",
    `sha256:${"0".repeat(64)}`,
    "ed25519:a_1x2y",
    "kid:org-b-2026",
  ],
};

const bytes = (value: unknown) => Buffer.from(typeof value === "string" ? value : JSON.stringify(value));

describe("readReport", () => {
  it("readReport accepts a report of references, with one digest however it is written [ABU-1]", () => {
    const one = readReport(bytes(REPORT));
    const other = readReport(
      bytes(JSON.stringify(Object.fromEntries(Object.entries(REPORT).reverse()), null, 4)),
    );
    assert.deepEqual(one.report, REPORT);
    assert.equal(one.digest, other.digest);
    assert.notEqual(one.digest, readReport(bytes({ ...REPORT, severity: "low" })).digest);
  });

  it("readReport refuses content in any field, and does not repeat it [ABU-1]", () => {
    const canary = "harbour-canary";
    const spoiled = [
      { ...REPORT, evidence_refs: [canary] },
      { ...REPORT, evidence_refs: [`$${canary}`] },
      { ...REPORT, evidence_refs: [`$${canary} said this`] },
      { ...REPORT, evidence_refs: [`kid:${canary} and more`] },
      { ...REPORT, evidence_refs: [{ body: canary }] },
      { ...REPORT, [canary]: 1 },
      { ...REPORT, subject: { server_name: "b.test", [canary]: canary } },
      { ...REPORT, category: canary },
      { ...REPORT, reporter: { server_name: `${canary} b.test` } },
      { ...REPORT, schema: canary },
      canary,
      `${JSON.stringify(REPORT)} ${canary}`,
    ];
    for (const value of spoiled) {
      const { problems } = readReport(bytes(value));
      assert.ok(problems !== undefined && problems.length > 0, JSON.stringify(value));
      assert.ok(!problems.join("\n").includes(canary), problems.join("\n"));
    }
  });

  it("readReport refuses a report about the reporter, and lists every missing field at once [ABU-1]", () => {
    const own = readReport(bytes({ ...REPORT, subject: REPORT.reporter }));
    assert.deepEqual(own.problems, ["subject.server_name: is the reporter's own"]);
    for (const field of Object.keys(REPORT)) {
      const { [field]: _gone, ...rest } = REPORT as Record<string, unknown>;
      assert.equal(readReport(bytes(rest)).problems?.length, 1, field);
    }
    const two = readReport(bytes({ ...REPORT, category: "x", severity: "y" }));
    assert.deepEqual(two.problems, [
      `category: must be one of ${CATEGORIES.join(", ")}`,
      "severity: must be one of low, medium, high, critical",
    ]);
  });

  it("readReport refuses a report without references [ABU-1]", () => {
    const { problems } = readReport(bytes({ ...REPORT, evidence_refs: [] }));
    assert.deepEqual(problems, ["evidence_refs: too small"]);
  });

  it("readReport refuses random bytes and hostile JSON without throwing [ABU-1]", () => {
    fc.assert(
      fc.property(fc.uint8Array(), (random) => {
        assert.ok(readReport(random).problems !== undefined);
      }),
    );
    fc.assert(
      fc.property(fc.constantFrom(...Object.keys(REPORT)), fc.jsonValue(), (field, value) => {
        const read = readReport(bytes({ ...REPORT, [field]: value }));
        if (read.report !== undefined)
          assert.deepEqual(Object.keys(read.report).sort(), Object.keys(REPORT).sort());
      }),
    );
    assert.ok(readReport(Buffer.alloc(300_000, "[")).problems !== undefined);
  });

  it("the schema in the registry accepts what readReport accepts [ABU-1]", () => {
    const schema = JSON.parse(abuseReportSchema());
    assert.equal(schema.$id, "svc.federation.abuse-report.v1");
    assert.equal(schema.additionalProperties, false);
    assert.deepEqual(schema.properties.category.enum, [...CATEGORIES]);
    assert.deepEqual(schema.required, Object.keys(REPORT));
  });
});
