// How long an access token lives at most, whichever issuer gives it. What control over partners says of tokens
// that a closed client still holds, in evidence and in signed records, rests on it: no issuer may exceed it.

/** Seconds. */
export const TOKEN_LIFE_S = 300;
