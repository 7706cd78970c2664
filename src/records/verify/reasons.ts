// Why a record is not what it should be: a closed set, each reported in a sentence with what to do
// about it. `part` is the part of a complete record (1 to 6) that it takes away.
// Published in docs/reference/offboarding-records.md, which a test compares with this file.

export interface Reason {
  readonly sentence: string;
  readonly hint: string;
  /** Something is absent, rather than wrong. */
  readonly missing?: true;
  readonly part?: 1 | 2 | 3 | 4 | 5 | 6;
}

const ORIGINAL = "Get the file again from an organisation that signed it, unchanged.";
const FORGED =
  "Ask both organisations for their own copy; if theirs verifies, this one was altered on its way.";
const COMPLETE_AGAIN =
  "Make the completion again from the statements and evidence that were signed, and sign it.";
const SIGN_AGAIN = "Have the organisation state this stage anew for this run, and both sign it.";

export const REASONS = {
  // The file.
  record_unreadable: {
    sentence:
      "the file is no JSON that every reader understands alike (duplicate names, bad text, too large)",
    hint: ORIGINAL,
  },
  record_too_many: {
    sentence: "the file has more statements or items of evidence than a record can have; none was read",
    hint: ORIGINAL,
  },
  record_malformed: { sentence: "the file is no offboarding record, version 1", hint: ORIGINAL },
  record_reformatted: {
    sentence: "the file says what a record says, but not in a record's one form",
    hint: `${ORIGINAL} Programs that indent or sort JSON, and editors, change it.`,
  },
  // Who is trusted.
  party_untrusted: {
    sentence: "the trust file has no key of an organisation that has to sign",
    hint: "Add its public key, received by another way than the record.",
  },
  key_of_two_parties: {
    sentence: "the trust file gives one key to two organisations, so it identifies neither",
    hint: "Find out whose key it is, and get the other organisation's.",
  },
  parties_not_expected: {
    sentence: "the record is about other organisations than the trust file expects",
    hint: "Look for the record of the removal that is meant.",
  },
  run_not_expected: {
    sentence: "the record is of another run than the trust file expects, such as an earlier removal",
    hint: "Look for the record of the run that is meant.",
  },
  // Envelopes.
  not_an_envelope: { sentence: "this is no DSSE envelope, or not in its one form", hint: ORIGINAL },
  wrong_payload_type: { sentence: "the envelope does not carry an in-toto statement", hint: FORGED },
  unknown_key: { sentence: "a signature is by a key that is not trusted", hint: FORGED },
  duplicate_signature: { sentence: "one key has signed twice", hint: FORGED },
  signatures_out_of_order: { sentence: "the signatures are not ordered by key ID", hint: ORIGINAL },
  signature_malformed: {
    sentence: "a signature is not DER with the smaller s, such as raw r‖s",
    hint: "Sign with `drawbridge`, which writes that form whatever the signer program returns.",
  },
  signature_invalid: { sentence: "a signature does not verify", hint: FORGED },
  signature_missing: {
    sentence: "an organisation that has to sign has not",
    hint: "Send it the statement to countersign.",
    missing: true,
  },
  signature_extra: {
    sentence: "there is a signature beyond one of the remover and one of the partner",
    hint: FORGED,
  },
  not_a_statement: { sentence: "what was signed is no statement of the expected kind", hint: SIGN_AGAIN },
  other_predicate_type: {
    sentence: "the statement is of another type or version than belongs here",
    hint: "Look for a version of Drawbridge that knows its `predicateType`; version 1 of a record has no other.",
  },
  not_canonical: { sentence: "what was signed is not the canonical text of its statement", hint: SIGN_AGAIN },
  subjects_differ: {
    sentence: "the statement's subjects are not exactly the digests that it names",
    hint: SIGN_AGAIN,
  },
  // One removal.
  one_party: { sentence: "remover and partner are one organisation", hint: SIGN_AGAIN },
  other_run: { sentence: "the statement is of another run", hint: SIGN_AGAIN },
  other_parties: { sentence: "the statement is about another remover or partner", hint: SIGN_AGAIN },
  other_kind: {
    sentence: "the statement names another kind of removal than the completion",
    hint: SIGN_AGAIN,
  },
  kind_contradicts_trigger: {
    sentence: "an emergency is one only when a compromise is suspected",
    hint: COMPLETE_AGAIN,
    part: 2,
  },
  not_a_party: {
    sentence: "an organisation is named that is neither remover nor partner",
    hint: COMPLETE_AGAIN,
  },
  // Stages.
  stage_missing: {
    sentence: "an organisation's statement about a stage is not there",
    hint: "Have the stage signed by both, and make the completion again.",
    missing: true,
    part: 4,
  },
  stage_repeated: { sentence: "there are two statements by one organisation about one stage", hint: FORGED },
  stage_out_of_place: { sentence: "a stage is not where the order of stages puts it", hint: FORGED },
  chain_broken: {
    sentence: "the statement does not follow on from the same organisation's stage before it",
    hint: SIGN_AGAIN,
  },
  stage_not_closed: {
    sentence: "a stage that this kind of removal closes is said not to apply",
    hint: "Close that plane and sign the stage, or make it a removal of another kind.",
    missing: true,
    part: 4,
  },
  stage_out_of_scope: {
    sentence: "a partial removal closed a plane that it leaves alone",
    hint: "Record it as the full removal that it was.",
  },
  condition_missing: {
    sentence: "the stage does not speak of one of its exit conditions",
    hint: SIGN_AGAIN,
    missing: true,
    part: 4,
  },
  condition_repeated: { sentence: "the stage speaks twice of one exit condition", hint: SIGN_AGAIN },
  condition_unproved: {
    sentence: "the exit condition was not observed to hold: no item of evidence says closed",
    hint: "Probe it again, and state the stage with what was found.",
    missing: true,
    part: 4,
  },
  revision_missing: {
    sentence: "a plane was closed without naming the reviewed revision and its render",
    hint: SIGN_AGAIN,
    missing: true,
    part: 3,
  },
  duties_have_no_plane: { sentence: "the duties that follow name a revision or a render", hint: SIGN_AGAIN },
  // Evidence.
  evidence_malformed: { sentence: "an item is no content-free evidence, version 1", hint: FORGED },
  evidence_altered: { sentence: "an item of evidence is not what its digest says", hint: FORGED },
  evidence_out_of_order: { sentence: "the items are not ordered by digest, each once", hint: ORIGINAL },
  evidence_missing: {
    sentence: "an item that a stage rests on is not in the record",
    hint: "Get the item from the organisation that signed the stage.",
    missing: true,
    part: 4,
  },
  evidence_extra: { sentence: "the record holds an item that no stage rests on", hint: FORGED },
  evidence_about_another: {
    sentence: "an item is about another organisation than the one that this stage closes out",
    hint: SIGN_AGAIN,
  },
  evidence_of_another_plane: { sentence: "an item is about another plane than its stage", hint: SIGN_AGAIN },
  evidence_out_of_time: {
    sentence: "an item was observed before the stage was opened or after it was closed",
    hint: "Probe again while the stage is open, and state it with what was found.",
  },
  seen_from_outside_alone: {
    sentence: "no item of the stage is the operator's own, and observations from outside never suffice alone",
    hint: "Probe it from inside as well, and state the stage with what was found.",
    missing: true,
    part: 4,
  },
  evidence_says_open: {
    sentence: "an item that the stage rests on says that the way is open",
    hint: "Close it, probe again, and state the stage with what was found.",
  },
  // What could not be reached.
  unreached_not_listed: {
    sentence:
      "an item says that nothing could be said, and the stage does not list its subject as out of reach",
    hint: "Probe again, or list the subject as out of reach.",
    missing: true,
    part: 4,
  },
  out_of_reach_dropped: {
    sentence: "a stage lists something as out of reach that the completion does not list",
    hint: COMPLETE_AGAIN,
    missing: true,
  },
  out_of_reach_not_waived: {
    sentence: "something was out of reach, and is not waived with a reason",
    hint: "Reach it, or have the owner waive it with a reason, and make the completion again.",
    missing: true,
  },
  // What the completion binds.
  stage_not_bound: {
    sentence: "the completion does not name this stage statement, or names another in its place",
    hint: COMPLETE_AGAIN,
  },
  stage_bound_but_absent: {
    sentence: "the completion names a stage statement that the record does not hold",
    hint: COMPLETE_AGAIN,
    missing: true,
  },
  evidence_not_bound: {
    sentence: "a stage rests on an item that the completion does not name",
    hint: COMPLETE_AGAIN,
  },
  evidence_bound_but_absent: {
    sentence: "the completion names an item that no stage rests on",
    hint: COMPLETE_AGAIN,
  },
  revisions_differ: {
    sentence: "the completion's revisions are not exactly those of the stages",
    hint: COMPLETE_AGAIN,
    part: 3,
  },
  bound_out_of_order: {
    sentence: "the completion does not list stages and evidence in their order, each once",
    hint: COMPLETE_AGAIN,
  },
  // The six parts.
  attestation_missing: {
    sentence: "an organisation has no named owner who attests",
    hint: COMPLETE_AGAIN,
    missing: true,
    part: 1,
  },
  owner_not_attested: {
    sentence: "the completion names another owner of the partner than the partner's data duties attest",
    hint: "Name the owner that the partner has stated, and make the completion again.",
    part: 1,
  },
  attestation_repeated: { sentence: "two owners attest for one organisation", hint: COMPLETE_AGAIN, part: 1 },
  key_not_attested: {
    sentence: "an organisation signed the completion by another key than its attestation names",
    hint: "Find out whose key is whose: the trust file may have exchanged them.",
    part: 1,
  },
  static_tests_missing: {
    sentence: "an organisation has no static test that passed",
    hint: "Run `drawbridge federation check` there, and make the completion again.",
    missing: true,
    part: 3,
  },
  purge_not_shown: {
    sentence: "the purge is said to be done, but not shown by evidence of the data duties",
    hint: COMPLETE_AGAIN,
    missing: true,
    part: 5,
  },
  purge_of_another_kind: {
    sentence:
      "the purge is said to be shown by an item that is of no purge, or by nothing of the partner that was deleted",
    hint: COMPLETE_AGAIN,
    missing: true,
    part: 5,
  },
  purge_not_waived: {
    sentence: "the purge is neither done nor waived with a reason",
    hint: COMPLETE_AGAIN,
    missing: true,
    part: 5,
  },
  retention_undecided: {
    sentence: "a duty to keep data needs its last day, and one that has ended has none",
    hint: COMPLETE_AGAIN,
    missing: true,
    part: 5,
  },
  readmission_undecided: {
    sentence: "the partnership may resume, but nobody owns that or no condition is named",
    hint: COMPLETE_AGAIN,
    missing: true,
    part: 6,
  },
  times_out_of_order: {
    sentence: "the times contradict the order in which it must have happened",
    hint: "Look at the clocks of both organisations; state again what was stated with a wrong time.",
  },
  // What passes between the organisations.
  exchange_malformed: {
    sentence: "the file is no exchange of statements, version 1",
    hint: "Ask the other organisation to export it again.",
  },
  exchange_from_another: {
    sentence: "the file is not from the other organisation of this removal",
    hint: "Import it where the removal that it belongs to is under way.",
  },
  states_for_another: {
    sentence: "an organisation has stated what is the other one's to state",
    hint: "Refuse it: each organisation states its own stages, and the remover the completion.",
  },
  statement_conflicts: {
    sentence: "another statement about the same is held already; an organisation states a thing once",
    hint: "Ask the other organisation why there are two, and keep both files.",
  },
} as const satisfies Readonly<Record<string, Reason>>;

export type ReasonCode = keyof typeof REASONS;

/** One thing that is wrong, and where. */
export interface Problem {
  readonly reason: ReasonCode;
  /** Such as `completion`, `stages[3]`, `a.test/room`, a digest; safe to print. */
  readonly where: string;
  /** What it is about, such as a key ID or a field; safe to print. */
  readonly detail?: string;
}

/** What a file that nobody vouches for may have written into a place or a name, made safe to print. */
export function printable(text: string): string {
  return text.replaceAll(/[^\x20-\x7e]/g, "?").slice(0, 160);
}

export function reasonOf(code: ReasonCode): Reason {
  return REASONS[code];
}
