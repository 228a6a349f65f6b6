/** The failed attempts of a task, the newest first, with the traceback of one of them. */
import { useState } from "preact/hooks";
import type { AttemptRow } from "../api.ts";
import { duration, parseTime, shortId } from "../format.ts";
import { t } from "../messages.ts";
import { Icon } from "./icon.tsx";
import { Clock } from "./time.tsx";
import { Traceback } from "./traceback.tsx";

export function Attempts({ errors }: { errors: readonly AttemptRow[] }) {
  const newest = [...errors].reverse();
  const [shown, show] = useState<string | null>(null);
  const error = newest.find((each) => keyOf(each) === shown) ?? newest[0];
  if (!error) return null;
  return (
    <section class="card attempts">
      <div class="card-head"><h2>{t.attempts(errors.length)}</h2></div>
      <div class="attempts-body">
        <ul>
          {newest.map((each) => (
            <li key={keyOf(each)}>
              <button class="attempt" aria-pressed={each === error} onClick={() => show(keyOf(each))}>
                <b>{each.attempt}</b><Icon name="failed" class="state-failed" /><span>{each.type}</span><small>{took(each)}</small>
              </button>
            </li>
          ))}
        </ul>
        <div class="attempt-detail">
          <p class="error-line"><strong>{error.type}</strong> {error.message}</p>
          <p class="hint">{error.started_at && <><Clock at={error.started_at} /> · </>}{error.worker ? t.on(shortId(error.worker)) : ""}</p>
          {error.traceback ? <Traceback text={error.traceback} /> : <p class="hint">{t.noTraceback}</p>}
        </div>
      </div>
    </section>
  );
}

/** A crash that is not counted has the number of the attempt after it. */
function keyOf({ attempt, started_at: from }: AttemptRow): string {
  return `${attempt} ${from ?? ""}`;
}

function took({ started_at: from, ended_at: to }: AttemptRow): string {
  const begin = parseTime(from);
  const end = parseTime(to);
  return begin === null || end === null ? "" : duration(end - begin);
}
