import type { OutboxDetail, PauseRow, RelayRow, TopicRow } from "../api.ts";
import { AskButton, ChangeButton } from "../components/change-button.tsx";
import { DeadLetters } from "../components/dead-letters.tsx";
import { Empty, Loaded } from "../components/empty.tsx";
import { FailedEvents } from "../components/failed-events.tsx";
import { Ago, Since } from "../components/time.tsx";
import { count } from "../format.ts";
import { useListKeys } from "../list-keys.ts";
import { t } from "../messages.ts";
import { canOperate } from "../session.ts";
import { useView } from "../view.ts";

const LIVE = { watch: "watch=overview", on: ["invalidate"], invalidatedBy: ["outbox", "limits"], pause: 1000, every: 2000 } as const;

export function OutboxPage() {
  const { data, error, reload } = useView<OutboxDetail>("/outbox", {}, LIVE);
  useListKeys();
  const again = () => reload(true);
  return (
    <Loaded data={data.value} error={error.value}>
      {(outbox) => (
        <div class="stack">
          <header class="page-head">
            <h1>{t.pages.outbox}</h1>
            {outbox.paused && <PauseText pause={outbox.paused} />}
            <span class="grow" />
            {canOperate.value && <PauseOutbox topic={null} pause={outbox.paused} pending={outbox.pending} onDone={again} />}
          </header>
          <Totals outbox={outbox} />
          {outbox.topics.length === 0 && outbox.relays.length === 0
            ? <Empty icon="outbox" title={t.empty.outbox} text={t.empty.outboxText} code={t.empty.outboxCode} />
            : <Topics rows={outbox.topics} onDone={again} />}
          {outbox.failed_events.length > 0 && (
            <FailedEvents rows={outbox.failed_events} isMore={outbox.failed > outbox.failed_events.length} onDone={again} />
          )}
          <DeadLetters />
          <Relays outbox={outbox} />
        </div>
      )}
    </Loaded>
  );
}

function Totals({ outbox }: { outbox: OutboxDetail }) {
  const oldest = outbox.topics.map((topic) => topic.oldest).filter((at) => at !== null).sort()[0] ?? null;
  const sum = (value: (topic: TopicRow) => number) => outbox.topics.reduce((total, topic) => total + value(topic), 0);
  const blocked = sum((topic) => topic.blocked_keys);
  const open = (outbox.handles.pending ?? 0) + (outbox.handles.complete ?? 0);
  return (
    <dl class="tiles">
      <div class="tile"><dt>{t.events.pending}</dt><dd>{count(outbox.pending)}</dd></div>
      <div class="tile"><dt>{t.events.oldest}</dt><dd>{oldest === null ? t.none : <Since at={oldest} />}</dd></div>
      <div class="tile"><dt>{t.events.sent}</dt><dd>{count(sum((topic) => topic.sent_per_minute))}</dd></div>
      <div class={outbox.failed > 0 ? "tile bad" : "tile"}><dt>{t.events.failed}</dt><dd>{count(outbox.failed)}</dd></div>
      <div class={blocked > 0 ? "tile bad" : "tile"}><dt>{t.events.blocked}</dt><dd>{count(blocked)}</dd></div>
      <div class="tile"><dt>{t.events.openHandles}</dt><dd>{count(open)}</dd></div>
    </dl>
  );
}

function PauseText({ pause }: { pause: PauseRow }) {
  return <span class="pause-text">{t.events.pausedFor(pause.reason)} {pause.since && <Ago at={pause.since} />}</span>;
}

interface PauseOutboxProps { topic: string | null; pause: PauseRow | null; pending: number; onDone: () => void }

/** topic: null: all of them. */
function PauseOutbox({ topic, pause, pending, onDone }: PauseOutboxProps) {
  const name = topic ?? t.events.allTopics;
  if (pause) return <ChangeButton label={t.resume} icon="play" primary path="/outbox/resume" body={{ topic }} done={t.resumedNow(name)} onDone={onDone} />;
  return (
    <AskButton label={t.pause} icon="paused" title={t.pauseTitle(name)} action={t.pauseAction} path="/outbox/pause" body={{ topic }}
      done={t.pausedNow(name)} onDone={onDone}>{t.events.pauseEffect(count(pending))}</AskButton>
  );
}

function Topics({ rows, onDone }: { rows: readonly TopicRow[]; onDone: () => void }) {
  if (rows.length === 0) return null;
  return (
    <section class="card">
      <div class="card-head"><h2>{t.events.topics}</h2></div>
      <table class="rows cards tall">
        <thead>
          <tr>
            <th>{t.events.topic}</th><th class="number">{t.events.pending}</th><th class="time">{t.events.oldest}</th><th class="number">{t.events.sent}</th>
            <th class="number">{t.events.failed}</th><th class="number">{t.events.blocked}</th><th>{t.events.lastError}</th>
            {canOperate.value && <th><span class="hidden-text">{t.columns.actions}</span></th>}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={row.topic}>
              <td class="main">{row.topic}{row.paused && <> <PauseText pause={row.paused} /></>}</td>
              <td class="number" data-name={t.events.pending}>{count(row.pending)}</td>
              <td class="time" data-name={t.events.oldest}><Since at={row.oldest} /></td>
              <td class="number" data-name={t.events.sent}>{count(row.sent_per_minute)}</td>
              <td class={row.failed > 0 ? "number bad" : "number zero"} data-name={t.events.failed}>{count(row.failed)}</td>
              <td class={row.blocked_keys > 0 ? "number bad" : "number zero"} data-name={t.events.blocked}>{count(row.blocked_keys)}</td>
              <td class="error-text"><span class="clamp" title={row.error}>{row.error}</span></td>
              {canOperate.value && <td class="actions"><PauseOutbox topic={row.topic} pause={row.paused} pending={row.pending} onDone={onDone} /></td>}
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

function Relays({ outbox: { pending, relays, groups } }: { outbox: OutboxDetail }) {
  return (
    <div class="columns">
      <section class="card">
        <div class="card-head"><h2>{t.events.relays}</h2></div>
        {relays.length === 0
          ? <p class="pad"><span class={pending > 0 ? "none-alive" : ""}>{t.events.noRelay}</span> <code>{t.events.noRelayCode}</code></p>
          : <ul class="plain">{relays.map((relay) => <Relay key={relay.id} relay={relay} />)}</ul>}
      </section>
      {groups.length > 0 && (
        <section class="card">
          <div class="card-head"><h2>{t.events.groups}</h2></div>
          <ul class="plain">
            {groups.map(({ group, lag, members }) => (
              <li key={group}><strong>{group}</strong> <span class="hint">{t.events.lag(count(lag))} · {t.events.members(members)}</span></li>
            ))}
          </ul>
        </section>
      )}
    </div>
  );
}

function Relay({ relay }: { relay: RelayRow }) {
  return (
    <li>
      <strong>{relay.host}</strong> <span class="hint">{t.pid(relay.pid)} · {relay.bus} · <Since at={relay.since} /> · {t.events.buckets(relay.buckets.length)}</span>
      <span class="buckets" aria-hidden="true">{Array.from({ length: 16 }, (_, bucket) => <i key={bucket} class={relay.buckets.includes(bucket) ? "owned" : ""} />)}</span>
    </li>
  );
}
