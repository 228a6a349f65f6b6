/** Times and ages. The exact time in UTC is on hover. */
import { age, clock, parseTime, utc } from "../format.ts";
import { t } from "../messages.ts";
import { now, zone } from "../session.ts";

interface TimeProps { at: string | null | undefined }

export function Clock({ at }: TimeProps) {
  const found = parseTime(at);
  if (found === null) return <span class="none">{t.none}</span>;
  return <time dateTime={at ?? ""} title={utc(found)}>{clock(found, now.value, zone.value)}</time>;
}

/** "3 min ago" or "in 42 s". The clocks of server and browser differ a little: there is no "in 0 s". */
export function Ago({ at }: TimeProps) {
  const found = parseTime(at);
  if (found === null) return <span class="none">{t.none}</span>;
  const passed = now.value - found;
  const text = passed > -1000 ? t.ago(age(passed)) : t.inTime(age(-passed));
  return <time dateTime={at ?? ""} title={utc(found)}>{text}</time>;
}

/** From one time of the day to another. */
export function Span({ from, to }: { from: string; to: string }) {
  const [first, last] = [from, to].map((at) => clock(Date.parse(at), now.value, zone.value));
  return <time dateTime={to} title={t.span(utc(Date.parse(from)), utc(Date.parse(to)))}>{first === last ? first : t.span(first ?? "", last ?? "")}</time>;
}

/** The time that has passed, as it grows: of a running task. */
export function Since({ at }: TimeProps) {
  const found = parseTime(at);
  if (found === null) return <span class="none">{t.none}</span>;
  return <time dateTime={at ?? ""} title={utc(found)}>{age(now.value - found)}</time>;
}
