import torch



from rmsnorm_baseline import BaselineModel
from rmsnorm_kernel import KernelModel

DEVICE = "cuda"
DTYPE = torch.float16  



def benchmark_model(model, input_tensor, num_runs=100, warmup_runs=10):
    model.eval()  
    dtype = input_tensor.dtype
    model = model.to(input_tensor.device).to(dtype)

    
    for _ in range(warmup_runs):
        _ = model(input_tensor)
    torch.cuda.synchronize()

    
    start_event = torch.cuda.Event(enable_timing=True)
    end_event = torch.cuda.Event(enable_timing=True)
    start_event.record()
    for _ in range(num_runs):
        _ = model(input_tensor)
    end_event.record()
    torch.cuda.synchronize()
    elapsed_time_ms = start_event.elapsed_time(end_event)
    avg_time_ms = elapsed_time_ms / num_runs
    return avg_time_ms


input_size_bench = 4096
hidden_size_bench = 4096  
output_size_bench = 10
eps_val_bench = 1e-5



baseline_model_bench = (
    BaselineModel(
        input_size_bench, hidden_size_bench, output_size_bench, eps=eps_val_bench
    )
    .to(DEVICE)
    .to(DTYPE)
)
kernel_model_bench = (
    KernelModel(
        input_size_bench,
        hidden_size_bench,
        output_size_bench,
        device=DEVICE,
        dtype=DTYPE,
        eps=eps_val_bench,
    )
    .to(DEVICE)
    .to(DTYPE)
)



warmup_input = torch.randn(4096, input_size_bench, device=DEVICE, dtype=DTYPE)
_ = kernel_model_bench(warmup_input)
_ = baseline_model_bench(warmup_input)

batch_sizes = [
    256,
    512,
    1024,
    2048,
    4096,
    8192,
    16384,
    32768,
]

print(
    f"'Batch Size':<12 | 'Baseline Time (ms)':<18 | 'Kernel Time (ms)':<18 | 'Speedup'"
)
print("-" * 74)

for batch_size in batch_sizes:
    
    torch.cuda.synchronize()

    
    
    bench_input = torch.randn(batch_size, input_size_bench, device=DEVICE, dtype=DTYPE)

    
    baseline_time = benchmark_model(baseline_model_bench, bench_input)

    kernel_time = -1  

    kernel_time = benchmark_model(kernel_model_bench, bench_input)

    baseline_time = round(baseline_time, 4)
    kernel_time = round(kernel_time, 4)
    speedup = round(baseline_time / kernel_time, 2) if kernel_time > 0 else "N/A"
    if kernel_time < baseline_time:
        speedup = f"speedup:.2fx"
    elif kernel_time == baseline_time:
        speedup = "1.00x (identical)"
    else:
        speedup = f"kernel_time / baseline_time:.2fx slower"
    print(f"batch_size:<12 | baseline_time:<18 | kernel_time:<18 | speedup")
