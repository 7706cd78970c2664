// The texts in each language, and which language a room gets.
import type { RoomId } from "../../domain/identifiers.ts";
import type { BridgeConfig, Language } from "../config.ts";
import { DE } from "./de.ts";
import { EN, type Texts } from "./en.ts";

export const CATALOGUES: Readonly<Record<Language, Texts>> = { en: EN, de: DE };

export type TextsOf = (room: RoomId) => Texts;

export function textsBy(settings: BridgeConfig["language"]): TextsOf {
  const rooms = new Map(Object.entries(settings.rooms));
  return (room) => CATALOGUES[rooms.get(room) ?? settings.default];
}
