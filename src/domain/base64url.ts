// Base64url as JOSE writes it (RFC 7515, section 2): no padding, no other character, and no second
// spelling of the same bytes.

/** Decodes; undefined unless the text is exactly what encoding those bytes gives. */
export function decodeBase64url(text: string): Buffer | undefined {
  const bytes = Buffer.from(text, "base64url");
  return bytes.toString("base64url") === text ? bytes : undefined;
}

export function encodeBase64url(data: string | Uint8Array): string {
  return Buffer.from(data).toString("base64url");
}
