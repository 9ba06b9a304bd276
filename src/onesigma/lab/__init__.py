"""The laboratory: datasets, the paper, the demo, benchmarks. The product does not import it.

Its parts stand in one order, and each may import only those before it:

    spotting           how well a score finds wrong answers and foreign input
    rivals             scores of foreign input from other papers, fitted on plain networks
    c_verify           compile what the C exporter writes, and run it here or emulated
    networks           the networks that are trained and measured here
    deployed_networks  those of other papers, as they run on devices
    sensing_networks   those that remember, attend or gate
    timing             how long several callables take, compared with each other
    figures            how figures are saved, and the picture of an audit
    plots              the picture of confidence and entropy
    datasets           where data comes from, how it is cut and split, the paper's noise
    guard_inputs       what a guard is tested on: shifted, unknown, far and broken input
    training           one training, and pools of them; interrupted ones go on
    checkpoint         the smartwatch network that is shipped
    paper              the paper's experiments, from data to tables, figures and pages
    bench              what uncertainty costs, and how close one pass is to Monte Carlo
    demo               what ``onesigma demo`` and ``live --demo`` show
    commands           ``onesigma demo``, ``bench`` and ``reproduce``
"""
