// What a file of the registry may not hold, because it is a secret or resembles one. Invariants: a finding says the rule and
// the line and never the value; the raw text is searched, comments and broken YAML included, and the parsed values besides.
import { isMap, isNode, isScalar, isSeq, type LineCounter } from "yaml";
import type { RegistryProblem } from "./problems.ts";

/** Each rule's name, and what completes "holds …". */
const HOLDS = {
  "secret.private_jwk_member": "a member of a private key (RFC 7518: d, p, q, dp, dq, qi, k, oth)",
  "secret.pem_block": "a PEM block or a key file's first line",
  "secret.jwt": "a JSON Web Token",
  "secret.authorization": "an Authorization header's credentials",
  "secret.matrix_token": "an access, refresh or registration token of a Matrix server",
  "secret.server_signing_key": "a homeserver's private signing key",
  "secret.vendor_token": "a token with the prefix of a known vendor",
  "secret.url_credentials": "a URL with a user, a password or a token in it",
  "secret.named_value": "a value where only a reference may stand",
  "secret.high_entropy": "a value that looks like a key, a token or a generated password",
} as const;
type SecretRule = keyof typeof HOLDS;
const RULES = Object.keys(HOLDS) as SecretRule[];

/** What a line shows by itself. Each takes time in proportion to the line, whatever that holds. */
const PATTERNS: Readonly<Partial<Record<SecretRule, RegExp>>> = {
  "secret.private_jwk_member": /(?:^|[\s{,#"'])(?:d|p|q|dp|dq|qi|k|oth)["']?\s*:\s*["']?[A-Za-z0-9+/_-]{16,}/,
  "secret.pem_block": /-----\s*BEGIN [A-Z0-9 ]+-----|PuTTY-User-Key-File|AGE-SECRET-KEY-1/i,
  "secret.jwt": /\beyJ[A-Za-z0-9_-]{6,2048}\.(?:[A-Za-z0-9_-]*\.){1,3}[A-Za-z0-9_-]*/,
  "secret.authorization": /\b(?:bearer|basic)\s+(?=\S*[0-9+/=_])[A-Za-z0-9._~+/=-]{12,}/i,
  "secret.matrix_token":
    /\b(?:sy[tr]|ma[tr]|mc[tr]|mpt)_[A-Za-z0-9_-]{10,}|\b(?:as|hs)_token["']?\s*[:=]\s*["']?\S/,
  "secret.server_signing_key": /\bed25519\s+[A-Za-z0-9_]+\s+[A-Za-z0-9+/]{43}/,
  "secret.vendor_token":
    /\b(?:gh[pousr]_[A-Za-z0-9]{20}|github_pat_[A-Za-z0-9_]{20}|glpat-[A-Za-z0-9_-]{16}|xox[abeoprs]-[A-Za-z0-9-]{10}|(?:AKIA|ASIA)[A-Z0-9]{16}|AIza[A-Za-z0-9_-]{30}|sk[-_](?:live_|test_|proj-|ant-)?[A-Za-z0-9]{16}|npm_[A-Za-z0-9]{30}|hv[bs]\.[A-Za-z0-9_-]{20}|pypi-[A-Za-z0-9_-]{20}|dop_v1_[a-f0-9]{20})/,
  "secret.url_credentials":
    /[a-z0-9+.-]:\/\/[^\s/?#@"']+@|[?&](?:access_token|token|api_?key|key|password|client_secret|secret|sig|signature)=[^\s&"']/i,
};

const SECRET_NAME =
  "passwords?|passwd|pwd|passphrase|secrets?|tokens?|api_?keys?|private_?keys?|credentials?|seed";
/** A key whose value would be a secret: `clientSecret`, `access_token`, `password`; not `tokenEndpoint`. */
const SECRET_KEY = new RegExp(`(?:${SECRET_NAME})$`, "i");
const NAMED_IN_COMMENT = new RegExp(
  `(?:${SECRET_NAME})["']?\\s*[:=]\\s*["']?(?=\\S{0,255}[0-9!$%&*])\\S{6,}`,
  "i",
);
/** To the end of the line, a carriage return before its line feed included. */
const COMMENT = /(?:^|\s)#(.*)$/s;

/** Keys whose values are public by nature, however random they look: coordinates and key identifiers. */
const PUBLIC_KEYS = new Set(["x", "y", "kid", "keyId", "serverKeys"]);
/** Keys that hold server names and user IDs; their grammar leaves no room for a base64 key. */
const SERVERS = new Set(["serverName", "applicant", "trustedKeyServers", "allowedServers", "allowedSenders"]);
const PRIVATE_MEMBERS = new Set(["d", "p", "q", "dp", "dq", "qi", "k", "oth"]);

export const secretsInText = (text: string, file: string): RegistryProblem[] =>
  text.split("\n").flatMap((line, index) => {
    const found = RULES.filter((rule) => PATTERNS[rule]?.test(line));
    const comment = COMMENT.exec(line)?.[1];
    if (found.length === 0 && comment !== undefined) {
      if (NAMED_IN_COMMENT.test(comment)) found.push("secret.named_value");
      else if (holdsRandomWord(comment)) found.push("secret.high_entropy");
    }
    return found.map((rule) => secretProblem(rule, file, index + 1));
  });

export function secretsInValues(root: unknown, lines: LineCounter, file: string): RegistryProblem[] {
  const problems: RegistryProblem[] = [];
  const add = (rule: SecretRule, node: unknown) => {
    const offset = isNode(node) && node.range ? node.range[0] : 0;
    problems.push(secretProblem(rule, file, lines.linePos(offset).line));
  };
  const visit = (node: unknown, keys: readonly string[]): void => {
    if (isMap(node)) {
      const names = new Set(node.items.map(({ key }) => (isScalar(key) ? String(key.value) : "")));
      for (const { key, value } of node.items) {
        const name = isScalar(key) ? String(key.value) : "";
        if (names.has("kty") && PRIVATE_MEMBERS.has(name)) add("secret.private_jwk_member", key);
        else if (SECRET_KEY.test(name) && isSecretScalar(value)) add("secret.named_value", key);
        else if (holdsRandomWord(name)) add("secret.high_entropy", key);
        else visit(value, [...keys, name]);
      }
    } else if (isSeq(node)) for (const item of node.items) visit(item, keys);
    else if (isScalar(node) && typeof node.value === "string" && mustNotBeRandom(node.value, keys)) {
      add("secret.high_entropy", node);
    }
  };
  visit(root, []);
  return problems;
}

const isSecretScalar = (node: unknown): boolean =>
  isScalar(node) && ["number", "string"].includes(typeof node.value) && node.value !== "";

function mustNotBeRandom(value: string, keys: readonly string[]): boolean {
  const name = keys.at(-1) ?? "";
  if (PUBLIC_KEYS.has(name) || SERVERS.has(name) || keys.includes("keyIds")) return false;
  // The host of a URL is no place for a secret; what follows it is.
  return holdsRandomWord(value.replace(/^[a-z]+:\/\/[^/?#\s]+/i, ""));
}

const secretProblem = (rule: SecretRule, file: string, line: number): RegistryProblem => ({
  ...{ file, line, path: "", rule },
  message: `holds ${HOLDS[rule]}`,
  hint:
    "Keep it in a file or a variable outside the repository and name that ({file: …} or {env: …}). " +
    "If it was ever committed, it is known: replace it.",
});

/** Shorter words resemble abbreviations and version numbers. */
const LENGTH_MIN = 20;
const HEX_LENGTH_MIN = 32;
/** The mean length of runs of one kind of character: about 1.7 in base64, 5 in words. */
const MEAN_RUN_MAX = 2.9;

/** Identifiers, however random they are: UUIDs, and digests with the name of their algorithm. */
const IDENTIFIER =
  /\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b|\bsha(?:256|384|512)[:-][A-Za-z0-9+/_=-]{43,}/gi;
const WORD = /[A-Za-z0-9+/_=-]{20,}/g;

/** Whether a text holds a word that a machine seems to have drawn at random. Linear in the length of the text. */
export function holdsRandomWord(text: string): boolean {
  for (const [word] of text.replaceAll(IDENTIFIER, " ").matchAll(WORD)) {
    // A path is judged by its parts as well, so that words around a token do not hide it.
    if (isRandom(word) || word.split(/[/=]/).some(isRandom)) return true;
  }
  return false;
}

function isRandom(word: string): boolean {
  if (word.length < LENGTH_MIN) return false;
  if (/^[0-9a-f]+$/i.test(word)) return word.length >= HEX_LENGTH_MIN && new Set(word).size >= 6;
  const parts = word.split(/[^A-Za-z0-9]+/);
  // What people write seldom changes between letters, capitals and digits; what machines draw, all the time.
  // Short parts are left out: `k8s-v2-x86` is a name.
  const mixed = isMixed(parts.join(""), LENGTH_MIN - 3) && parts.some((part) => isMixed(part, 10));
  return mixed || parts.some(isDrawnFromOneCase);
}

function isMixed(part: string, lengthMin: number): boolean {
  const runs = part.match(/[A-Z]?[a-z]+|[A-Z]+|[0-9]+/g) ?? [];
  return part.length >= lengthMin && part.length / runs.length < MEAN_RUN_MAX;
}

/** Lower-case or upper-case letters with digits strewn in, as base32 has them, or letters no tongue can say. */
function isDrawnFromOneCase(part: string): boolean {
  if (part.length < 24 || (part !== part.toLowerCase() && part !== part.toUpperCase())) return false;
  const digitRuns = part.match(/[0-9]+/g) ?? [];
  if (digitRuns.length >= 3) return true;
  const vowels = part.match(/[aeiouy]/gi) ?? [];
  return vowels.length / part.length < 0.22 && /[^aeiouy0-9]{6}/i.test(part);
}
