// The reference of federation control says what is really printed: every reason.
import assert from "node:assert/strict";
import { globSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, it } from "node:test";
import { ROOM_REASONS } from "../../../src/federation/planes/rooms/room-reasons.ts";
import { OUTSIDE_PROBES } from "../../../src/federation/probes/read-answers.ts";
import { OutcomeName, RefusalReason } from "../../../src/federation/state/plane-records.ts";
import { ROOT } from "../../support/temporary.ts";

const PAGES = ["federation", "reconciler", "rooms-plane", "border", "registry"];

/** Every word in backticks, and every word of what is printed, on the pages of federation control. */
const named = new Set(
  PAGES.flatMap((page) => {
    const text = readFileSync(join(ROOT, `docs/reference/${page}.md`), "utf8");
    return [...text.matchAll(/`([^`\n]+)`/g)].flatMap(
      ([, quoted = ""]) => quoted.match(/[a-z0-9_.]+/g) ?? [],
    );
  }),
);

describe("federation reference", () => {
  it("the reference names every reason of the closed sets", () => {
    const closed = [
      ...RefusalReason.options,
      ...OutcomeName.options,
      ...Object.keys(ROOM_REASONS),
      ...Object.keys(OUTSIDE_PROBES),
    ];
    assert.deepEqual(
      closed.filter((word) => !named.has(word)),
      [],
    );
  });

  /** Where a word becomes a reason, a probe, a kind of drift or a rule. */
  const SAID: readonly RegExp[] = [
    /\b(?:reason|probe|rule|event|absent|deferred|code): "([a-z_.]+)"/g,
    /(?:notConfigured|notApplicable|observed|seal|problem)\(\s*"([a-z_.]+)"/g,
    /new DrawbridgeError\(\s*"([a-z_]+)"/g,
    /^ {2,}\[\/.*\/, (?:"[a-z_]+", )?"([a-z_]+)"\],$/gm,
    /^ {2,}\d{3}: "([a-z_]+)",$/gm,
  ];
  /** Words with an underscore that are names of fields, settings and protocols, and never a reason. */
  const NOT_SAID: ReadonlySet<string> = new Set(
    `access_token additional_creators appservice_id client_credentials declared_clients delete_id delete_status event_id federation_domain_whitelist history_visibility invalid_value join_rule joined_members
   knock_restricted not_met private_chat raise_invite room_version service_account set_acl state_default stream_items unrecognized_keys users_default world_readable`.split(
      /\s+/,
    ),
  );

  it("the reference names every reason that the sources give, and no word with an underscore is forgotten", () => {
    const files = globSync(
      ["src/federation/**/*.ts", "src/cli/federation/*.ts", "src/cli/lib/*.ts", "src/cli/reconcile.ts"],
      {
        cwd: ROOT,
        // Removal, re-admission and an agent's identity have pages of their own, and the page of conditions is generated.
        exclude: [
          "src/federation/{offboarding,readmission,agents,workflow}/**",
          "src/cli/lib/agent-identity.ts",
        ],
      },
    );
    assert.ok(files.length > 50);
    const found = new Set<string>();
    const underscored = new Set<string>();
    for (const file of files) {
      const text = readFileSync(join(ROOT, file), "utf8");
      for (const pattern of SAID) for (const [, word = ""] of text.matchAll(pattern)) found.add(word);
      for (const [, word = ""] of text.matchAll(/"([a-z]+(?:_[a-z0-9]+)+)"/g)) underscored.add(word);
    }
    assert.ok(found.size > 80);
    assert.deepEqual(
      [...found].filter((word) => !named.has(word)).sort(),
      [],
      "said, and not in the reference",
    );
    const forgotten = [...underscored].filter((word) => !named.has(word) && !NOT_SAID.has(word));
    assert.deepEqual(forgotten.sort(), [], "name them in the reference, or here as not said");
    assert.deepEqual(
      [...NOT_SAID].filter((word) => !underscored.has(word) || named.has(word)),
      [],
    );
  });
});
