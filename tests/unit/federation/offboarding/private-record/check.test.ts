// What the private record holds, what it refuses by name, and what it says is missing.
import assert from "node:assert/strict";
import { generateKeyPairSync } from "node:crypto";
import { describe, it } from "node:test";
import fc from "fast-check";
import { parse } from "yaml";
import * as z from "zod";
import { checkRecordText, valueAt } from "../../../../../src/federation/offboarding/private-record/check.ts";
import { registryProblems } from "../../../../../src/federation/offboarding/private-record/file.ts";
import {
  PrivateRecord,
  RECORD_FIELDS,
  renderTemplate,
} from "../../../../../src/federation/offboarding/private-record/schema.ts";
import { loadRegistry } from "../../../../../src/federation/registry/load.ts";
import { editYaml } from "../../../../../src/runtime/edit-yaml.ts";
import { unicodeText } from "../../../../support/arbitraries.ts";
import { COMPLETE_RECORD, recordJson, recordWith, registryFiles } from "../../../../support/sample-files.ts";

const privateKey = generateKeyPairSync("ec", { namedCurve: "P-256" }).privateKey;
const jwt = `eyJhbGciOiJFUzI1NiJ9.${Buffer.from('{"azp":"b"}').toString("base64url")}.c2lnbmF0dXJl`;
const random = Buffer.alloc(32, "b7Q!x").toString("base64url");

describe("checkRecordText", () => {
  it("checkRecordText accepts a record of the specification's fields, as YAML and as JSON [OFF-1]", () => {
    for (const text of [COMPLETE_RECORD, recordJson()]) {
      const { record, missing, problems } = checkRecordText(text);
      assert.deepEqual({ missing, problems }, { missing: [], problems: [] });
      assert.equal(record?.partner.serverName, "matrix.lighthouse.example:8448");
    }
  });

  it("RECORD_FIELDS lists exactly the fields of the schema, in its order [OFF-1]", () => {
    const paths = (schema: z.ZodType, prefix: string): string[] => {
      if (schema instanceof z.ZodObject) {
        return Object.entries(schema.shape).flatMap(([key, below]) =>
          paths(below as z.ZodType, prefix === "" ? key : `${prefix}.${key}`),
        );
      }
      return [prefix];
    };
    const known = RECORD_FIELDS.map(({ path }) => path);
    assert.deepEqual(
      known,
      paths(PrivateRecord, "").filter((path) => path !== "version" && path !== "run"),
    );
  });

  it("record.closes_more refuses a partial removal that would close agents which are not named [PRT-1]", () => {
    const registry = loadRegistry(registryFiles());
    const entry = registry.partners.find(({ name }) => name === "lighthouse") ?? assert.fail();
    const refused = (kind: string, agents: readonly string[]) => {
      const text = editYaml(recordWith("revocation.kind", kind), [
        { path: ["affected", "agents"], value: agents },
      ]);
      const { record } = checkRecordText(text);
      assert.ok(record !== undefined);
      return registryProblems(record, registry, entry)
        .filter(({ rule }) => rule === "record.closes_more")
        .map(({ message }) => message.split(" ")[3]);
    };
    assert.deepEqual(refused("partial", ["docs-qa"]), ["berth_planner,", "lighthouse-weather,"]);
    assert.deepEqual(refused("partial", ["docs-qa", "berth_planner", "lighthouse-weather"]), []);
    assert.deepEqual(refused("full", ["docs-qa"]), [], "a full one closes everything, as its name says");
  });

  it("checkRecordText lists every missing field of a new record, until it is filled in [OFF-1]", () => {
    let text = renderTemplate(new Map([["partner.serverName", "b.test"]]));
    const wanted = RECORD_FIELDS.filter((field) => !field.isOptional && field.path !== "partner.serverName");
    assert.deepEqual(
      checkRecordText(text).missing,
      wanted.map(({ path }) => path),
    );
    const whole = parse(COMPLETE_RECORD) as unknown;
    for (const { path } of RECORD_FIELDS) {
      const value = valueAt(whole, path.split("."));
      if (value === undefined) continue;
      text = editYaml(text, [{ path: path.split("."), value }]);
      const { missing, problems } = checkRecordText(text);
      assert.ok(!missing.includes(path), path);
      assert.deepEqual(problems, []);
    }
    assert.notEqual(checkRecordText(text).record, undefined);
    assert.match(text, /^# Private offboarding record/);
  });

  it("checkRecordText reports empty sections and absent fields as missing, not as wrong [OFF-1]", () => {
    const { missing, problems } = checkRecordText("version: 1\npartner: {serverName: b.test}\nsecurity:\n");
    assert.deepEqual(problems, []);
    assert.ok(missing.includes("security.incidentOwner") && missing.includes("attestation.partner"));
    assert.ok(!missing.includes("partner.serverName"));
  });

  /** What each rule must find: the rule, the field, and the value. */
  const REFUSED: readonly (readonly [rule: string, field: string, value: unknown])[] = [
    ["personal.mail_address", "security.incidentOwner", "anna@harbour.example"],
    ["personal.mail_address", "technical.owner", "mailto:oncall"],
    ["personal.mail_address", "partner.legalEntity", "Lighthouse GmbH (info [at] lighthouse.example)"],
    ["personal.mail_address", "change.reference", "Jürgen.Müller@häfen.example"],
    ["personal.matrix_user", "technical.owner", "@anna:harbour.example"],
    ["personal.matrix_user", "change.reference", "https://matrix.to/#/@anna:harbour.example"],
    ["personal.matrix_user", "change.rollback", "matrix:u/anna:harbour.example"],
    ["personal.account", "technical.owner", "skype:anna.b"],
    ["personal.account", "change.reference", "https://linkedin.com/in/anna-b"],
    ["record.value", "attestation.partner", "Anna Schmidt"],
    ["record.value", "readmission.owner", "Dr. Anna M. O'Neill"],
    ["content.room_event", "partner.legalEntity", '{"msgtype": "m.text"}'],
    ["content.room_event", "change.rollback", "m.room.message"],
    ["content.transcript", "partner.legalEntity", "[12:03] anna: the berth is free"],
    ["content.transcript", "partner.legalEntity", "<@anna> the berth is free"],
    ["content.free_text", "partner.legalEntity", "Lighthouse\nthe berth is free"],
    ["content.free_text", "change.reference", "x".repeat(600)],
    [
      "secret.pem_block",
      "change.rollback",
      String(privateKey.export({ format: "pem", type: "pkcs8" })).slice(0, 27),
    ],
    ["secret.private_jwk_member", "change.reference", `{"d":"${privateKey.export({ format: "jwk" }).d}"}`],
    ["secret.jwt", "change.reference", jwt],
    ["secret.authorization", "partner.legalEntity", "Bearer 2YotnFZFEjr1zCsicMWpAA"],
    ["secret.matrix_token", "change.reference", "syt_YWRtaW4_kWnOpQrStUvWxYzAbCdE_1a2b3c"],
    [
      "secret.server_signing_key",
      "partner.legalEntity",
      "ed25519 a_lXqt XGzPaQ3cWvVQzHkbRSOGeWSYcXbkcWkqOZbLEfLkPzA",
    ],
    ["secret.vendor_token", "change.reference", "ghp_16C7e42F292c6912E7710c838347Ae178B4a"],
    ["secret.url_credentials", "change.reference", "https://admin:hunter2@tickets.example.org/"],
    ["secret.high_entropy", "change.rollback", random],
    ["secret.high_entropy", "readmission.conditions", [random]],
  ];

  for (const [rule, field, value] of REFUSED) {
    it(`${rule} refuses ${String(value).slice(0, 24).replaceAll(/\s/g, " ")}… in ${field} [OFF-1]`, () => {
      for (const text of [recordWith(field, value), recordJson((record) => setIn(record, field, value))]) {
        const { record, problems } = checkRecordText(text);
        assert.equal(record, undefined);
        const found = problems.find((problem) => problem.rule === rule && problem.field.startsWith(field));
        assert.ok(found, `found ${JSON.stringify(problems)}`);
        assert.ok(found.line >= 1 && found.hint !== "");
        const reported = JSON.stringify(problems);
        for (const word of String(value).match(/[A-Za-z0-9_-]{8,}/g) ?? []) {
          if (/^(?:BEGIN|PRIVATE|message|readmission)$/.test(word)) continue;
          assert.ok(!reported.includes(word), `${reported} repeats ${word}`);
        }
      }
    });
  }

  function setIn(record: Record<string, unknown>, path: string, value: unknown): void {
    const steps = path.split(".");
    const last = steps.pop() ?? "";
    let at = record;
    for (const step of steps) at = at[step] as Record<string, unknown>;
    at[last] = value;
  }

  it("checkRecordText applies the content rules to comments, keys and broken YAML [OFF-1]", () => {
    const lines: readonly (readonly [rule: string, line: string])[] = [
      ["personal.mail_address", "# ask anna@harbour.example"],
      ["personal.matrix_user", "# @anna:harbour.example"],
      ["content.transcript", "# <anna> the berth is free"],
      ["content.free_text", `# ${"so it went on ".repeat(20)}`],
      ["secret.named_value", "# the old password: hunter2!"],
      ["secret.jwt", `# ${jwt}`],
      ["personal.mail_address", `"anna@harbour.example": 1`],
      ["personal.mail_address", `broken: [ # anna@harbour.example`],
    ];
    for (const [rule, line] of lines) {
      const { problems, record } = checkRecordText(`${line}\n${COMPLETE_RECORD}`);
      assert.equal(record, undefined);
      assert.ok(
        problems.some((problem) => problem.rule === rule),
        `${rule}: ${line}: ${JSON.stringify(problems)}`,
      );
      assert.ok(!JSON.stringify(problems).includes("anna@"));
    }
  });

  it("checkRecordText searches a comment whatever ends its line, and refuses other places for words [OFF-1]", () => {
    const mail = "anna@harbour.example";
    const ends = ["\r\n", "\u2028\n", "\r \n"];
    for (const end of ends) {
      for (const [rule, word] of [
        ["personal.mail_address", mail],
        ["secret.named_value", "password: hunter2!"],
      ]) {
        const text = COMPLETE_RECORD.replaceAll("\n", end === "\r\n" ? end : "\n");
        const { record, problems } = checkRecordText(`# ${word}${end}${text}`);
        assert.equal(record, undefined, JSON.stringify(end));
        assert.deepEqual(
          problems.map((problem) => [problem.rule, problem.line]),
          [[rule, 1]],
        );
      }
    }
    assert.notEqual(checkRecordText(COMPLETE_RECORD.replaceAll("\n", "\r\n")).record, undefined);
    const besides = [
      COMPLETE_RECORD.replace("owner: S-1204", `owner: &${mail} S-1204`),
      COMPLETE_RECORD.replace("owner: S-1204", `owner: !${mail} S-1204`),
      COMPLETE_RECORD.replace("affected:", `affected: &${mail}`),
      COMPLETE_RECORD.replace("  rooms: [", `  ? !${mail} rooms\n  : [`),
      `%NOTE ${mail}\n---\n${COMPLETE_RECORD}`,
    ];
    for (const text of besides) {
      const { record, problems } = checkRecordText(text);
      assert.equal(record, undefined, text);
      assert.ok(
        problems.some(({ rule }) => rule === "record.form"),
        JSON.stringify(problems),
      );
      assert.ok(!JSON.stringify(problems).includes(mail));
    }
  });

  it("record.unknown_field refuses an unknown field, and record.value a wrong value [OFF-1]", () => {
    const wrong = recordJson((record) => {
      record["password"] = "hunter2";
      record["notes"] = "x";
      setIn(record, "revocation.kind", "complete");
      setIn(record, "affected.rooms", ["#alias:harbour.example"]);
      setIn(record, "maintenance.from", "tomorrow");
      setIn(record, "technical.owner", "on call");
    });
    const { problems } = checkRecordText(wrong);
    const found = problems.map(({ rule, field }) => `${rule} ${field}`);
    for (const one of [
      "secret.named_value password",
      "record.unknown_field notes",
      "record.value revocation.kind",
      "record.value affected.rooms.0",
      "record.value maintenance.from",
      "record.value technical.owner",
    ]) {
      assert.ok(found.includes(one), `${one}: ${found.join("; ")}`);
    }
    assert.ok(!JSON.stringify(problems).includes("hunter2"));
  });

  it("checkRecordText refuses fields that contradict each other, each by its rule [OFF-1]", () => {
    const cases: readonly (readonly [rule: string, text: string])[] = [
      ["record.kind_contradicts_trigger", recordWith("revocation.kind", "emergency")],
      ["record.window", recordWith("maintenance.until", "2026-01-31T03:00:00Z")],
      ["record.retention", recordWith("duties.retention", { state: "ended", until: "2030-01-01" })],
      [
        "record.quarantined_media",
        recordWith("duties.purge", {
          remoteMedia: "keep",
          quarantinedMedia: "purge",
          rooms: [{ room: "!a:b", how: "room" }],
        }),
      ],
      ["record.purge_waiver", recordWith("duties.purge.waiver", "contract_14")],
      ["record.readmission_conditions", recordWith("readmission.conditions", [])],
      [
        "record.room_twice",
        recordWith("duties.purge.rooms", [
          { room: "!a:b", how: "room" },
          { room: "!a:b", how: "keep" },
        ]),
      ],
      ["record.form", `${COMPLETE_RECORD}version: 1\n`],
      ["record.form", "- a list\n"],
      ["record.form", "partner: &a {legalEntity: x}\nsecurity: *a\n"],
    ];
    for (const [rule, text] of cases) {
      const { record, problems } = checkRecordText(text);
      assert.equal(record, undefined, rule);
      assert.ok(
        problems.some((problem) => problem.rule === rule),
        `${rule}: ${JSON.stringify(problems)}`,
      );
    }
  });

  it("checkRecordText accepts the names of roles, tickets, rooms and companies [OFF-1]", () => {
    const fine: readonly (readonly [field: string, value: unknown])[] = [
      ["partner.legalEntity", "Société Générale des Ports de l'Atlantique S.A."],
      ["partner.legalEntity", "Hafen Hamburg 4711 AöR & Co. KG"],
      ["partner.serverName", "[2001:db8::1]:8448"],
      ["security.incidentOwner", "on-call-security.2"],
      ["technical.owner", "S-0012345678"],
      ["change.reference", "https://git.example.org/ops/federation/pulls/1234"],
      ["change.reference", "CHG0012345678"],
      ["change.rollback", "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"],
      ["affected.rooms", [`!${random}`, "!+4930:1234567.example"]],
      ["maintenance.expectedInterruption", "90s"],
      ["readmission.conditions", ["new-contract", "pins:fresh", "clause_14.2"]],
    ];
    for (const [field, value] of fine) {
      assert.deepEqual(checkRecordText(recordWith(field, value)).problems, [], `${field} ${value}`);
    }
  });

  it("checkRecordText requires a day, a waiver and an owner where other fields do [OFF-1]", () => {
    const keepAll = { remoteMedia: "keep", quarantinedMedia: "keep", rooms: [{ room: "!a:b", how: "keep" }] };
    for (const [missing, text] of [
      ["duties.retention.until", recordWith("duties.retention", { state: "kept" })],
      ["duties.purge.waiver", recordWith("duties.purge", keepAll)],
      ["readmission.owner", recordWith("readmission.owner", null)],
    ] as const) {
      const checked = checkRecordText(text);
      assert.deepEqual([checked.record, checked.missing, checked.problems], [undefined, [missing], []]);
    }
    assert.ok(checkRecordText(recordWith("duties.purge", { ...keepAll, waiver: "contract_14" })).record);
  });

  it("checkRecordText never throws, hangs or returns an invalid record for random texts [OFF-1]", () => {
    fc.assert(
      fc.property(
        fc.oneof(
          unicodeText({ maxLength: 300 }),
          fc.uint8Array({ maxLength: 300 }).map((bytes) => Buffer.from(bytes).toString("utf8")),
          fc.json({ maxDepth: 4 }),
          fc
            .tuple(fc.nat(COMPLETE_RECORD.length), fc.nat(60), fc.string({ maxLength: 20 }))
            .map(
              ([at, length, insert]) =>
                COMPLETE_RECORD.slice(0, at) + insert + COMPLETE_RECORD.slice(at + length),
            ),
          fc.constantFrom(
            "[".repeat(100_000),
            "a: ".repeat(2_000),
            `${"- ".repeat(5_000)}x`,
            `a: ${"@".repeat(200_000)}`,
            "1@".repeat(100_000),
            `b: ${"a.".repeat(100_000)}`,
          ),
        ),
        (text) => {
          const begun = process.cpuUsage();
          const { record, missing, problems } = checkRecordText(text);
          assert.ok(process.cpuUsage(begun).user / 1_000 < 5_000, `slow: ${text.slice(0, 40)}`);
          if (record !== undefined) {
            assert.ok(PrivateRecord.safeParse(record).success);
            assert.deepEqual([missing, problems], [[], []]);
          } else assert.ok(missing.length + problems.length > 0);
        },
      ),
      { numRuns: 200 },
    );
  });

  it("checkRecordText refuses a mail address, a Matrix user ID or a token in any field [OFF-1]", () => {
    const whole = parse(COMPLETE_RECORD);
    const isWord = (value: unknown) => value === undefined || typeof value === "string";
    const fields = RECORD_FIELDS.filter(({ path }) => isWord(valueAt(whole, path.split("."))));
    const word = fc.stringMatching(/^[a-z]{1,12}$/);
    fc.assert(
      fc.property(
        fc.constantFrom(...fields),
        word,
        word,
        fc.oneof(
          fc
            .tuple(word, word)
            .map(([user, host]) => ["personal.mail_address", `${user}@${host}.example`] as const),
          fc
            .tuple(word, word)
            .map(([user, host]) => ["personal.matrix_user", ` @${user}:${host}.example`] as const),
          fc
            .uint8Array({ minLength: 32, maxLength: 32 })
            .map((bytes) => ["secret.matrix_token", ` syt_${Buffer.from(bytes).toString("hex")}`] as const),
        ),
        ({ path }, before, after, [rule, text]) => {
          const { record, problems } = checkRecordText(recordWith(path, `${before}${text} ${after}`));
          assert.equal(record, undefined);
          assert.ok(
            problems.some((problem) => problem.rule === rule && problem.field === path),
            `${path}: ${before}${text}`,
          );
        },
      ),
      { numRuns: 150 },
    );
  });
});
