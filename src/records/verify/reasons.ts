// Why a record is not what it should be: a closed set, each with what to do about it, and the part of a complete record
// (1 to 6) that it takes away; and the error that names them. Published in docs/reference/offboarding-records.md, which a
// test compares with this file.
import { DrawbridgeError } from "../../domain/errors.ts";

type Part = 1 | 2 | 3 | 4 | 5 | 6;
const wrong = (sentence: string, hint: string, part?: Part) => ({ sentence, hint, isMissing: false, part });
const missing = (sentence: string, hint: string, part?: Part) => ({ sentence, hint, isMissing: true, part });

const ORIGINAL = "Get the file again from an organisation that signed it, unchanged.";
const FORGED =
  "Ask both organisations for their own copy; if theirs verifies, this one was altered on its way.";
const COMPLETE_AGAIN =
  "Make the completion again from the statements and evidence that were signed, and sign it.";
const PROBE_AGAIN =
  "Close what is open, compare with docs/reference/conditions.md, probe again, and state the stage with what was found.";
const OTHER_RECORD = "Look for the record of the removal that is meant.";
const SIGN_AGAIN = "Have the organisation state this stage anew for this run, and both sign it.";

export const REASONS = {
  // The file.
  record_unreadable: wrong("the file is no valid, unambiguous JSON, or is too large", ORIGINAL),
  record_too_many: wrong("the file has more statements or items than a record can have", ORIGINAL),
  record_malformed: wrong("the file is no offboarding record, version 1", ORIGINAL),
  record_reformatted: wrong(
    "the file says what a record says, but not in a record's one form",
    `${ORIGINAL} Programs that indent or sort JSON, and editors, change it.`,
  ),
  // Who is trusted.
  party_untrusted: wrong(
    "the trust file has no key of an organisation that has to sign",
    "Add its public key, received by another way than the record.",
  ),
  key_of_two_parties: wrong(
    "the trust file gives one key to two organisations, so it identifies neither",
    "Find out whose key it is, and get the other organisation's.",
  ),
  parties_not_expected: wrong("the record is about other organisations than expected", OTHER_RECORD),
  run_not_expected: wrong("the record is of another run than expected, such as an earlier one", OTHER_RECORD),
  // DSSE envelopes.
  not_an_envelope: wrong("this is no DSSE envelope, or not in its one form", ORIGINAL),
  wrong_payload_type: wrong("the DSSE envelope does not carry an in-toto statement", FORGED),
  unknown_key: wrong("a signature is by a key that is not trusted", FORGED),
  duplicate_signature: wrong("one key has signed twice", FORGED),
  signatures_out_of_order: wrong("the signatures are not ordered by key ID", ORIGINAL),
  signature_malformed: wrong(
    "a signature is not DER with the smaller s, such as raw r‖s",
    "Sign with `drawbridge`, which writes that form whatever the signer program returns.",
  ),
  signature_invalid: wrong("a signature does not verify", FORGED),
  signature_missing: missing(
    "an organisation that has to sign has not",
    "Send it the statement to countersign.",
  ),
  signature_extra: wrong("there is a signature beyond one of the remover and one of the partner", FORGED),
  not_a_statement: wrong("what was signed is no statement of the expected kind", SIGN_AGAIN),
  other_predicate_type: wrong(
    "the statement is of another type or version than belongs here",
    "Look for a version of Drawbridge that knows its `predicateType`; version 1 of a record has no other.",
  ),
  not_canonical: wrong("what was signed is not the canonical text of its statement", SIGN_AGAIN),
  subjects_differ: wrong("the statement's subjects are not exactly the digests that it names", SIGN_AGAIN),
  // One removal.
  one_party: wrong("remover and partner are one organisation", SIGN_AGAIN),
  other_run: wrong("the statement is of another run", SIGN_AGAIN),
  other_parties: wrong("the statement is about another remover or partner", SIGN_AGAIN),
  other_kind: wrong("the statement names another kind of removal than the completion", SIGN_AGAIN),
  kind_contradicts_trigger: wrong("an emergency needs a suspected compromise", COMPLETE_AGAIN, 2),
  trigger_differs: wrong("an organisation's first stage names another trigger", COMPLETE_AGAIN, 2),
  not_a_party: wrong("an organisation is named that is neither remover nor partner", COMPLETE_AGAIN),
  // Stages.
  stage_missing: missing(
    "an organisation's statement about a stage is not there",
    "Have the stage signed by both, and make the completion again.",
    4,
  ),
  stage_repeated: wrong("there are two statements by one organisation about one stage", FORGED),
  stage_out_of_place: wrong("a stage is not where the order of stages puts it", FORGED),
  chain_broken: wrong("the statement does not follow on from the stage before it", SIGN_AGAIN),
  stage_not_closed: missing(
    "a stage that this kind of removal closes is said not to apply",
    "Close that plane and sign the stage, or make it a removal of another kind.",
    4,
  ),
  scope_malformed: wrong("the scope lacks what its stage needs, or has what it cannot have", SIGN_AGAIN),
  scope_differs: wrong(
    "the stage covers other programs, agents or clients than the same organisation's stage before it",
    "Open the removal again when what it has to cover has changed.",
  ),
  condition_unproved: missing("the evidence does not show a condition of the stage", PROBE_AGAIN, 4),
  condition_refuted: wrong("an item says the opposite of a condition of the stage", PROBE_AGAIN, 4),
  revision_missing: missing("a closed plane names no reviewed revision and render", SIGN_AGAIN, 3),
  duties_have_no_plane: wrong("the duties that follow name a revision or a render", SIGN_AGAIN),
  // Evidence.
  evidence_malformed: wrong("an item is no content-free evidence, version 1", FORGED),
  evidence_altered: wrong("an item of evidence is not what its digest says", FORGED),
  evidence_out_of_order: wrong("the items are not ordered by digest, each once", ORIGINAL),
  evidence_missing: missing(
    "an item that a stage rests on is not in the record",
    "Get the item from the organisation that signed the stage.",
    4,
  ),
  evidence_extra: wrong("the record holds an item that no stage rests on", FORGED),
  evidence_about_another: wrong("an item is not about the organisation that is closed out", SIGN_AGAIN),
  evidence_of_another_plane: wrong("an item is about another plane than its stage", SIGN_AGAIN),
  evidence_out_of_time: wrong("an item is from before or after the work on its stage", PROBE_AGAIN),
  evidence_shows_nothing: wrong("an item shows no condition of its stage", PROBE_AGAIN, 4),
  // What could not be reached.
  out_of_reach_dropped: missing(
    "what a stage lists as out of reach is not listed, or with another waiver",
    COMPLETE_AGAIN,
  ),
  out_of_reach_not_stated: wrong(
    "the completion lists as out of reach, or waives, what no stage does",
    COMPLETE_AGAIN,
  ),
  out_of_reach_not_waived: missing(
    "something was out of reach, and is not waived with a reason",
    "Reach it, or have the owner waive it with a reason, and state the stage anew.",
  ),
  // What the completion binds.
  stage_not_bound: wrong("the completion names another statement of this stage, or none", COMPLETE_AGAIN),
  stage_bound_but_absent: missing("a statement that the completion names is absent", COMPLETE_AGAIN),
  evidence_not_bound: wrong("a stage rests on an item that the completion does not name", COMPLETE_AGAIN),
  evidence_bound_but_absent: wrong("the completion names an item that no stage rests on", COMPLETE_AGAIN),
  revisions_differ: wrong("the completion's revisions are not those of the stages", COMPLETE_AGAIN, 3),
  bound_out_of_order: wrong("stages or evidence are not listed in order, each once", COMPLETE_AGAIN),
  // Of both organisations.
  unilateral: missing(
    "the partner has shown nothing closed on any plane: the record is the remover's alone",
    "Have the partner run its own stages of this removal, and complete it again.",
    4,
  ),
  // The six parts.
  attestation_missing: missing("an organisation has no named owner who attests", COMPLETE_AGAIN, 1),
  owner_not_attested: wrong(
    "the completion names another owner of the partner than the partner's data duties attest",
    "Name the owner that the partner has stated, and make the completion again.",
    1,
  ),
  attestation_repeated: wrong("two owners attest for one organisation", COMPLETE_AGAIN, 1),
  key_not_attested: wrong(
    "an organisation signed the completion by another key than its attestation names",
    "Find out whose key is whose: the trust file may have the two keys swapped.",
    1,
  ),
  static_tests_missing: missing(
    "an organisation has no static test that passed",
    "Run `drawbridge federation check` there, and make the completion again.",
    3,
  ),
  static_test_not_attested: wrong(
    "the completion names a static test of the partner that the partner's data duties do not attest",
    "Name the test that the partner has stated, and make the completion again.",
    3,
  ),
  purge_not_shown: missing("no evidence of the data duties shows the purge", COMPLETE_AGAIN, 5),
  purge_of_another_kind: missing("no item shows a purge of the partner's data", COMPLETE_AGAIN, 5),
  purge_not_waived: missing(
    "the purge is neither done nor waived with a reason that the data duties show",
    COMPLETE_AGAIN,
    5,
  ),
  retention_undecided: missing("a duty to keep has no last day, or an ended one has", COMPLETE_AGAIN, 5),
  duties_differ: wrong(
    "the completion names another retention or expiry of backups than the remover's data duties attest",
    "Put the duties in the private record back to what the stage states, and make the completion again.",
    5,
  ),
  readmission_undecided: missing("a re-admission without owner or conditions", COMPLETE_AGAIN, 6),
  times_out_of_order: wrong(
    "the times contradict the order in which it must have happened",
    "Look at the clocks of both organisations; state again what was stated with a wrong time.",
  ),
  // What passes between the organisations.
  exchange_malformed: wrong(
    "the file is no exchange of statements, version 1",
    "Ask the other organisation to export it again.",
  ),
  exchange_from_another: wrong(
    "the file is not from the other organisation of this removal",
    "Import it where the removal that it belongs to is under way.",
  ),
  states_for_another: wrong(
    "an organisation has stated what is the other one's to state",
    "Refuse it: each organisation states its own stages, and the remover the completion.",
  ),
  statement_conflicts: wrong(
    "another statement about the same is held already; an organisation states a thing once",
    "Ask the other organisation why there are two, and keep both files.",
  ),
};

export type ReasonCode = keyof typeof REASONS;

export interface Problem {
  readonly reason: ReasonCode;
  /** Such as `completion`, `stages[3]`, `a.test/room`, a digest; safe to print. */
  readonly where: string;
  /** What it is about, such as a key ID or a field; safe to print. */
  readonly detail?: string;
}

export type Report = (reason: ReasonCode, detail?: string, where?: string) => void;

export function problemsOf(at: string, check: (report: Report) => void): Problem[] {
  const all: Problem[] = [];
  check((reason, detail, where = at) => all.push({ reason, where, ...(detail !== undefined && { detail }) }));
  return all;
}

/** Adds to a list; there may be more problems than a call has arguments. */
export function addProblems(problems: Problem[], more: readonly Problem[]): void {
  for (const problem of more) problems.push(problem);
}

const PROBLEMS_MAX = 50;

export class RecordRefused extends DrawbridgeError {
  readonly problems: readonly Problem[];

  constructor(what: string, problems: readonly Problem[]) {
    // The other organisation's file may have hundreds of thousands of them.
    const lines = problems.slice(0, PROBLEMS_MAX).map(({ reason, where, detail }) => {
      const about = detail === undefined ? "" : ` (${detail})`;
      return `  ${reason} at ${where}${about}: ${REASONS[reason].sentence}`;
    });
    if (problems.length > PROBLEMS_MAX) lines.push(`  and ${problems.length - PROBLEMS_MAX} more`);
    const [first] = problems;
    const hint = first === undefined ? {} : { hint: REASONS[first.reason].hint };
    super("record_refused", [what, ...lines].join("\n"), hint);
    this.name = "RecordRefused";
    this.problems = problems;
  }
}

export function refuseUnlessClean(what: string, problems: readonly Problem[]): void {
  if (problems.length > 0) throw new RecordRefused(what, problems);
}

/** What a file that nobody vouches for may have written into a place or a name, made safe to print. */
export const printable = (text: string): string => text.replaceAll(/[^\x20-\x7e]/g, "?").slice(0, 160);
