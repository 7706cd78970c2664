// The one correct card that forgeries are made from, and who signs.
import { canonicalize } from "../../src/domain/canonical-json.ts";
import { bytesOf, fullCard, signedCard, signText, testKey } from "./cards.ts";

/** What is wrong with it, and its bytes. */
export type Forgery = readonly [what: string, card: Uint8Array];

export const ours = await testKey("ours-2026");
/** Another key, that claims the same key ID. */
export const attacker = await testKey("ours-2026");
export const CARD = fullCard();
export const PAYLOAD = canonicalize(CARD);
export const SIGNED = signedCard(ours, CARD);
export const SIGNATURE = signText(ours, PAYLOAD);

/** The correct card with these signatures instead. */
export const withSignatures = (signatures: unknown): Uint8Array => bytesOf({ ...CARD, signatures });
