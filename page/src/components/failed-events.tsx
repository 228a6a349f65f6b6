/** Events that the bus refuses, and what can be done with them. */
import type { EventRow } from "../api.ts";
import { t } from "../messages.ts";
import { canOperate } from "../session.ts";
import { AskButton, ChangeButton } from "./change-button.tsx";
import { Icon } from "./icon.tsx";
import { PayloadButton } from "./payload.tsx";
import { Ago } from "./time.tsx";

export function FailedEvents({ rows, isMore, onDone }: { rows: readonly EventRow[]; isMore: boolean; onDone: () => void }) {
  return (
    <section class="card">
      <div class="card-head"><h2>{t.events.failedEvents}</h2><span class="hint">{t.events.failedHint}</span></div>
      <table class="rows cards tall">
        <thead>
          <tr>
            <th>{t.events.event}</th><th>{t.events.key}</th><th>{t.events.error}</th><th class="time">{t.events.occurred}</th>
            <th><span class="hidden-text">{t.columns.actions}</span></th>
          </tr>
        </thead>
        <tbody>{rows.map((row) => <Row key={row.id} row={row} onDone={onDone} />)}</tbody>
      </table>
      {isMore && <p class="pages"><span class="hint">{t.events.moreFailed(rows.length)}</span></p>}
    </section>
  );
}

function Row({ row, onDone }: { row: EventRow; onDone: () => void }) {
  const id = encodeURIComponent(row.id);
  return (
    <tr>
      <td class="main"><Icon name="failed" class="state-failed" /> {row.type || row.id} <span class="hint">{row.topic} <code>{row.id}</code></span></td>
      <td data-name={t.events.key}><span class="clamp" title={row.key}>{row.key}</span></td>
      <td class="error-text"><span class="clamp" title={row.error}>{row.error}</span></td>
      <td class="time"><Ago at={row.occurred_at} /></td>
      <td class="actions">
        <PayloadButton path={`/outbox/events/${id}`} title={row.type || row.id} />
        {canOperate.value && (
          <>
            <ChangeButton label={t.retry} icon="retry" path={`/outbox/${id}/retry`} done={t.events.retried(row.id)} onDone={onDone} />
            <AskButton label={t.events.discard} icon="cancelled" title={t.events.discardTitle(row.id)} action={t.events.discardAction} danger
              path={`/outbox/${id}/discard`} done={t.events.discarded(row.id)} onDone={onDone}>{t.events.discardEffect(row.key)}</AskButton>
          </>
        )}
      </td>
    </tr>
  );
}
