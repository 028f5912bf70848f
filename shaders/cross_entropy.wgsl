// cross_entropy: softmax and negative log-likelihood of each row of logits
// [rows, classes]: loss, weight, logsumexp and whether the label's logit is
// the first largest.
//
// Mapping: a workgroup a row; lane l takes the classes l, l + WORKGROUP, …,
// and trees in workgroup memory join the lanes, always in the same order.
// Groups are folded into x and y.
// Moves: the logits twice (the second time from caches). Bound by bandwidth
// for many classes, by the launch of groups for few.
// Parameters: rows, classes, ignored label, bits of the label smoothing, place
// of the first row in the labels and the results.
var<workgroup> largest: array<f32, WORKGROUP>;
var<workgroup> place: array<u32, WORKGROUP>;
var<workgroup> exponentials: array<f32, WORKGROUP>;
var<workgroup> plain: array<f32, WORKGROUP>;

@compute @workgroup_size(WORKGROUP)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let row = linear_group(group, groups);
    if (row >= parameter(0u)) {
        return;
    }
    let classes = parameter(1u);
    let first = row * classes;
    // The largest logit, the first if there are equals.
    var best = as_f32(0xff800000u);
    var best_place = classes;
    for (var c = lane; c < classes; c += WORKGROUP) {
        let x = load_logits(first + c);
        if (x > best) {
            best = x;
            best_place = c;
        }
    }
    largest[lane] = best;
    place[lane] = best_place;
    for (var half = WORKGROUP / 2u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if (lane < half) {
            let other = largest[lane + half];
            let other_place = place[lane + half];
            let mine = largest[lane];
            if (other > mine || (other == mine && other_place < place[lane])) {
                largest[lane] = other;
                place[lane] = other_place;
            }
        }
    }
    workgroupBarrier();
    let shift = largest[0];
    var exponential = 0.0f;
    var sum = 0.0f;
    for (var c = lane; c < classes; c += WORKGROUP) {
        let x = load_logits(first + c);
        exponential += exp(x - shift);
        sum += shift - x;
    }
    exponentials[lane] = exponential;
    plain[lane] = sum;
    for (var half = WORKGROUP / 2u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if (lane < half) {
            exponentials[lane] += exponentials[lane + half];
            plain[lane] += plain[lane + half];
        }
    }
    if (lane != 0u) {
        return;
    }
    let logsumexp = shift + log(exponentials[0]);
    let here = parameter(4u) + row;
    let label = load_labels(here);
    var loss = 0.0f;
    var weight = 0.0f;
    var correct = 0.0f;
    if (bitcast<u32>(label) != parameter(2u)) {
        weight = 1.0f;
        // A label outside the classes, negative ones too, gives NaN.
        loss = as_f32(0x7fc00000u);
        let class_index = u32(label);
        if (class_index < classes) {
            let smoothing = as_f32(parameter(3u));
            let at_label = load_logits(first + class_index);
            // In differences to the largest logit: large logits cancel.
            loss = logsumexp - at_label;
            // Without smoothing a logit of minus infinity must not count.
            if (smoothing != 0.0f) {
                loss += smoothing * ((at_label - shift) + plain[0] / f32(classes));
            }
            correct = select(0.0f, 1.0f, place[0] == class_index);
        }
    }
    store_loss(here, loss);
    store_weight(here, weight);
    store_logsumexp(here, logsumexp);
    store_correct(here, correct);
}
