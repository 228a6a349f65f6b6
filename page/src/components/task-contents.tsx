/** Arguments, metadata, result and streamed items of a task: the exact text of the server, which has every digit. */
import type { TaskDetail } from "../api.ts";
import { bytes, count } from "../format.ts";
import { indented } from "../json-text.ts";
import { t } from "../messages.ts";
import { api } from "../session.ts";
import { CopyButton } from "./copy.tsx";
import { Download } from "./link.tsx";
import { StreamItems } from "./stream-items.tsx";
import { Clock } from "./time.tsx";

const ENDED = ["succeeded", "failed", "cancelled"];

export function Arguments({ task }: { task: TaskDetail }) {
  return (
    <section class="card">
      <div class="card-head"><h2>{t.arguments}</h2><CopyButton text={task.args_text} /></div>
      <pre class="json" tabIndex={0}>{indented(task.args_text)}</pre>
      {task.metadata_text !== "{}" && <><h3>{t.metadata}</h3><pre class="json" tabIndex={0}>{indented(task.metadata_text)}</pre></>}
      {task.redacted.length > 0 && <p class="hint">{t.redacted(task.redacted.join(", "))}</p>}
    </section>
  );
}

export function Result({ task }: { task: TaskDetail }) {
  return (
    <section class="card">
      <div class="card-head">
        <h2>{t.result}</h2>
        {task.result_status === "stored" && <Download address={api.address(`/tasks/${encodeURIComponent(task.uuid)}/result`)}>{t.download}</Download>}
      </div>
      <ResultText task={task} />
      {task.items_saved > 0 && <StreamItems uuid={task.uuid} saved={task.items_saved} />}
      {task.steps.length > 0 && (
        <>
          <h3>{t.steps}</h3>
          <table class="rows">
            <tbody>{task.steps.map((step) => <tr key={step.name}><td>{step.name}</td><td class="time"><Clock at={step.at} /></td><td class="number">{bytes(step.size)}</td></tr>)}</tbody>
          </table>
        </>
      )}
    </section>
  );
}

function ResultText({ task }: { task: TaskDetail }) {
  if (task.result_status !== "stored") {
    return <p class="hint">{ENDED.includes(task.state) ? t.resultStatus[task.result_status] ?? t.noResult : t.noResultYet}</p>;
  }
  return (
    <>
      <pre class="json" tabIndex={0}>{task.result_cut ? task.result_text : indented(task.result_text)}</pre>
      {task.result_cut && <p class="hint">{t.task.cut(count(task.result_text.length), count(task.result_size))}</p>}
    </>
  );
}
