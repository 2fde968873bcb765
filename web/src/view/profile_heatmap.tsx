/* profile_heatmap.tsx - the heads of a profile, to choose from and to disable. */
import type { Profile } from "../data/profile";
import { selectedHeads, useStore } from "../store";
import { Heatmap, type HeatmapProps } from "./heatmap";

type Known = "nLayers" | "nHeads" | "theme" | "selected" | "onSelect" | "onOff" | "onBlock";

export function ProfileHeatmap({
    profile,
    fixed,
    ...rest
}: Omit<HeatmapProps, Known> & { profile: Profile; fixed?: boolean /* heads cannot be disabled here */ }) {
    const { store, state } = useStore();
    return (
        <Heatmap
            {...rest}
            nLayers={profile.nLayers}
            nHeads={profile.nHeads}
            theme={state.theme}
            selected={selectedHeads(profile, state.selected).map((head) => head.index)}
            onSelect={(layer, head, add) => store.select(layer, head, add)}
            onOff={fixed ? undefined : (layer, head) => store.toggleOff(layer, head)}
            onBlock={fixed || !store.offHere ? undefined : (cells) => store.toggleBlock(cells)}
        />
    );
}
