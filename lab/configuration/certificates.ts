// The lab's certificate authority, and the certificates by which homeservers identify one another.
// Invariants: the authority is made once a lab; its private key is readable by this user alone; a certificate
// is renewed when less than a month of it is left.
import type { webcrypto } from "node:crypto";
import "reflect-metadata"; // The X.509 library does not load without it.
import {
  AuthorityKeyIdentifierExtension,
  BasicConstraintsExtension,
  ExtendedKeyUsage,
  ExtendedKeyUsageExtension,
  KeyUsageFlags,
  KeyUsagesExtension,
  SubjectAlternativeNameExtension,
  SubjectKeyIdentifierExtension,
  X509Certificate,
  X509CertificateGenerator,
} from "@peculiar/x509";
import type { Clock, Random } from "../../src/domain/clock.ts";
import { PRIVATE, PUBLIC, readIfPresent, writeWhole } from "../../src/runtime/write-file.ts";

const DAY_MS = 86_400_000;
const AUTHORITY_LIFE_MS = 3_650 * DAY_MS;
const CERTIFICATE_LIFE_MS = 397 * DAY_MS;
const RENEW_BEFORE_MS = 30 * DAY_MS;
const KEY: webcrypto.EcKeyGenParams = { name: "ECDSA", namedCurve: "P-256" };
const SIGNATURE = { name: "ECDSA", hash: "SHA-256" };

export interface Authority {
  /** PEM, for those who are to trust it. */
  readonly certificate: string;
  /** A server certificate for a host name, good for 127.0.0.1 too: PEM of the certificate and of its key. */
  issue(host: string): Promise<{ certificate: string; privateKey: string }>;
}

interface Sources {
  readonly clock: Clock;
  readonly random: Random;
}

/** Opens the authority whose files these are, or makes it. */
export async function openAuthority(
  files: { readonly certificate: string; readonly privateKey: string },
  sources: Sources,
): Promise<Authority> {
  const certificate = readIfPresent(files.certificate);
  const privateKey = readIfPresent(files.privateKey);
  if (certificate !== undefined && privateKey !== undefined) {
    const key = await crypto.subtle.importKey("pkcs8", derOf(privateKey), KEY, true, ["sign"]);
    return authority(new X509Certificate(certificate), key, sources);
  }
  const made = await makeAuthority(sources);
  writeWhole(files.privateKey, await pemOfKey(made.key), PRIVATE);
  writeWhole(files.certificate, `${made.certificate.toString("pem")}\n`, PUBLIC);
  return authority(made.certificate, made.key, sources);
}

/** Keeps a server's certificate up to date in its files. */
export async function keepCertificate(
  issuer: Authority,
  host: string,
  files: { readonly certificate: string; readonly privateKey: string },
  clock: Clock,
): Promise<void> {
  const found = readIfPresent(files.certificate);
  const isGood =
    found !== undefined &&
    readIfPresent(files.privateKey) !== undefined &&
    new X509Certificate(found).notAfter.getTime() - clock.now() > RENEW_BEFORE_MS;
  if (isGood) return;
  const issued = await issuer.issue(host);
  writeWhole(files.privateKey, issued.privateKey, PRIVATE);
  writeWhole(files.certificate, issued.certificate, PUBLIC);
}

async function makeAuthority({
  clock,
  random,
}: Sources): Promise<{ certificate: X509Certificate; key: webcrypto.CryptoKey }> {
  const keys = await crypto.subtle.generateKey(KEY, true, ["sign", "verify"]);
  const certificate = await X509CertificateGenerator.createSelfSigned({
    serialNumber: serial(random),
    name: "CN=Drawbridge lab authority",
    notBefore: new Date(clock.now() - DAY_MS),
    notAfter: new Date(clock.now() + AUTHORITY_LIFE_MS),
    signingAlgorithm: SIGNATURE,
    keys,
    extensions: [
      new BasicConstraintsExtension(true, 0, true),
      new KeyUsagesExtension(KeyUsageFlags.keyCertSign | KeyUsageFlags.cRLSign, true),
      await SubjectKeyIdentifierExtension.create(keys.publicKey),
    ],
  });
  return { certificate, key: keys.privateKey };
}

function authority(
  certificate: X509Certificate,
  key: webcrypto.CryptoKey,
  { clock, random }: Sources,
): Authority {
  return {
    certificate: `${certificate.toString("pem")}\n`,
    async issue(host) {
      const keys = await crypto.subtle.generateKey(KEY, true, ["sign", "verify"]);
      const issued = await X509CertificateGenerator.create({
        serialNumber: serial(random),
        subject: `CN=${host}`,
        issuer: certificate.subject,
        notBefore: new Date(clock.now() - DAY_MS),
        notAfter: new Date(clock.now() + CERTIFICATE_LIFE_MS),
        signingAlgorithm: SIGNATURE,
        publicKey: keys.publicKey,
        signingKey: key,
        extensions: [
          new BasicConstraintsExtension(false),
          new KeyUsagesExtension(KeyUsageFlags.digitalSignature, true),
          new ExtendedKeyUsageExtension([ExtendedKeyUsage.serverAuth]),
          new SubjectAlternativeNameExtension([
            { type: "dns", value: host },
            { type: "ip", value: "127.0.0.1" },
          ]),
          await SubjectKeyIdentifierExtension.create(keys.publicKey),
          await AuthorityKeyIdentifierExtension.create(certificate),
        ],
      });
      return { certificate: `${issued.toString("pem")}\n`, privateKey: await pemOfKey(keys.privateKey) };
    },
  };
}

/** Positive and of at most 20 octets (RFC 5280, section 4.1.2.2). */
function serial(random: Random): string {
  const bytes = random.bytes(16);
  bytes[0] = ((bytes[0] ?? 0) & 0x7f) | 0x40;
  return bytes.toString("hex");
}

async function pemOfKey(key: webcrypto.CryptoKey): Promise<string> {
  const der = Buffer.from(await crypto.subtle.exportKey("pkcs8", key)).toString("base64");
  return `-----BEGIN PRIVATE KEY-----\n${der.match(/.{1,64}/g)?.join("\n")}\n-----END PRIVATE KEY-----\n`;
}

function derOf(pem: string): Buffer<ArrayBuffer> {
  return Buffer.from(pem.replace(/-----[A-Z ]+-----/g, "").replace(/\s/g, ""), "base64");
}
