/** The filter as text. It completes keys, states and sources that the page knows already. */
import { useEffect, useState } from "preact/hooks";
import { STATES } from "../api.ts";
import { completions } from "../filters.ts";
import { t } from "../messages.ts";
import { Icon } from "./icon.tsx";

interface FilterBoxProps { value: string; sources: readonly string[]; trouble: string; onChange: (text: string) => void }

export function FilterBox({ value, sources, trouble, onChange }: FilterBoxProps) {
  const [text, setText] = useState(value);
  useEffect(() => setText(value), [value]);
  const submit = (event: Event) => {
    event.preventDefault();
    onChange(text.trim());
  };
  return (
    <form class="filter" role="search" onSubmit={submit}>
      <Icon name="search" />
      <input id="filter" type="text" value={text} list="filter-words" spellcheck={false} autocomplete="off" aria-label={t.filter}
        aria-invalid={trouble !== ""} aria-describedby={trouble ? "filter-trouble" : undefined} placeholder={t.filterHint}
        onInput={(event) => setText(event.currentTarget.value)}
        onKeyDown={(event) => event.key === "Escape" && event.currentTarget.blur()} />
      <datalist id="filter-words">
        {completions(text, { state: STATES, source: sources }).map((word) => <option key={word} value={word} />)}
      </datalist>
      {text !== "" && (
        <button type="button" class="square quiet" aria-label={t.clearFilter} title={t.clearFilter} onClick={() => onChange("")}><Icon name="close" /></button>
      )}
      {trouble && <p id="filter-trouble" class="trouble" role="alert">{trouble}</p>}
    </form>
  );
}
