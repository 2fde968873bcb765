/* keys.tsx - the list that "?" opens. */
import { useLayoutEffect, useRef } from "preact/hooks";

const KEYS: [string, string][] = [
    ["/", "to the figure"],
    ["← ↑ → ↓", "move over its cells or tokens"],
    ["Enter", "select the head or token"],
    ["Shift + Enter", "add the head to the selection"],
    ["X", "disable or enable the head"],
    ["+ − 0", "in an attention map: zoom in, zoom out, show all"],
    ["Tab", "next figure or button"],
    ["Esc", "close"],
    ["?", "this list"],
];

export function Keys({ onClose }: { onClose: () => void }) {
    const dialog = useRef<HTMLDialogElement>(null);
    useLayoutEffect(() => {
        const node = dialog.current!;
        node.showModal();
        return () => node.close();
    }, []);
    return (
        <dialog
            ref={dialog}
            class="keys"
            aria-label="Keys"
            onClose={onClose}
            onClick={(event) => {
                if (event.target === dialog.current) onClose();
            }}>
            <header>
                <h2>Keys</h2>
                <div class="actions">
                    <button type="button" class="quiet" aria-label="Close" onClick={onClose}>
                        ✕
                    </button>
                </div>
            </header>
            <dl>
                {KEYS.map(([key, does]) => (
                    <div key={key}>
                        <dt>
                            <kbd>{key}</kbd>
                        </dt>
                        <dd>{does}</dd>
                    </div>
                ))}
            </dl>
            <p>
                With the mouse: click chooses, Shift + click adds, and a rectangle disables its heads. The
                selection is part of the address, so that a view can be sent.
            </p>
        </dialog>
    );
}
