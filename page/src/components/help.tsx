import { useEffect, useRef } from "preact/hooks";
import { t } from "../messages.ts";
import { visibleEntries } from "../navigation.ts";
import { identity } from "../session.ts";

export function Help({ onClose }: { onClose: () => void }) {
  const element = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    element.current?.showModal();
  }, []);
  const pages = visibleEntries(identity.value.features).map(({ key, page }) => [`g ${key}`, t.pages[page]] as const);
  return (
    <dialog ref={element} onClose={onClose} aria-labelledby="help-title" class="help">
      <h2 id="help-title">{t.help.title}</h2>
      <dl>
        {[...pages, ...t.help.keys].map(([key, text]) => (
          <div key={key}><dt>{key.split(" ").map((part) => <kbd key={part}>{part}</kbd>)}</dt><dd>{text}</dd></div>
        ))}
      </dl>
      <div class="dialog-actions"><button onClick={() => element.current?.close()}>{t.close}</button></div>
    </dialog>
  );
}
